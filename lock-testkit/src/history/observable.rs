use std::fmt;

use super::event::Event;
use super::{busy, count, outcome, overlap, token, wake_up, write};

/// One way in which a lock can be seen to break. The names are those of the fault catalogue in `docs/safety.md`.
///
/// # What is exact, and what is assumed
///
/// The events are stamped by one clock, so no search for a possible order is needed: each check sorts and sweeps, and finds
/// all that there is. Two intervals that only touch do not overlap. Where the events leave open what happened (an answer that
/// was lost, a request under way), the lock has the benefit of the doubt.
///
/// Assumed is that the events are recorded when they should be: the beginning of an acquisition, or of a release, before its
/// request is sent; an answer after it has come. Then a hold began no later than its interval does, and ended no earlier, so
/// that an overlap that is found was one. What else a check assumes is said with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Observable {
    /// Two held at once, from the grant until the beginning of the release or the end of the actor, whatever their deadlines
    /// said. No lease can rule this out: a holder may be paused.
    ///
    /// Holds of one owner do not overlap: he may hold a lock more than once. This goes for all checks.
    RawOverlap,
    /// Two held at once although neither was past its deadline. A renewal moves the deadline unless it came after it. A holder
    /// who [affirmed](super::Hold::affirmed) that it held the lock did so, also past its deadline.
    InLeaseOverlap,
    /// A later grant of a key has no greater fencing token than an earlier one. Of two grants that were under way at the same
    /// time either may be the later one; the same token twice is right for one owner who has held the lock without a break.
    TokenRegression,
    /// A write of the guarded resource was based on a value that another had replaced meanwhile.
    ///
    /// Assumed: reads and writes are recorded in the order in which the resource saw them.
    LostUpdate,
    /// A resource accepted an older token after a newer one. Where not every write of a resource bears a token: the write of
    /// an earlier holder after that of a later one. A resource that checks tokens never does; beside it, one that does not
    /// check them shows what they are good for.
    ///
    /// Assumed: the writes that a resource accepted bear [its own count](super::Hold::wrote_as), or are recorded in the order
    /// in which it accepted them; and, of holders without tokens, that the later one is he whose grant was answered later.
    StaleWriteAccepted,
    /// A fresh client could not get the lock in time. A probe without an outcome did not.
    ///
    /// Assumed: by the beginning of the probe nobody uses the lock any more.
    Stuck,
    /// A lock was gone before its holder's deadline, without the holder's doing. What the holder merely
    /// [affirmed](super::Hold::affirmed) moves no deadline here.
    Stolen,
    /// The only waiter was granted the lock later than its bound after the lock was
    /// [found free](super::History::found_free_for), or not at all although it went on waiting.
    ///
    /// Assumed: it was the only one. A grant to another within the bound shows the contrary, and is no violation.
    LostWakeup,
    /// The store counts fewer holds of an owner than he must have there, or more than he can have. Between the two are
    /// acquisitions and releases under way or of unknown effect, and holds past their deadlines.
    ///
    /// Assumed: the owner did nothing while the store was [looked at](super::History::found_count).
    CountCorruption,
    /// An attempt ended "busy", and at no instant of it could anybody have had the lock: no other hold that was not known to be
    /// gone, no other attempt under way (it may have had a place in a queue), none of unknown effect. What is not known to be
    /// gone, such as the hold of an actor who was killed, stays possible until the lock is [found
    /// free](super::History::found_free): how long after a deadline a store keeps an entry is the store's affair.
    ///
    /// Assumed: everybody who uses the key is recorded, and a refused attempt leaves nothing in the store.
    UnjustifiedBusy,
    /// A release said "released" for a lock that was another's or known to be lost, or an acquire said that it failed
    /// without effect, and the lock was ours.
    ///
    /// Assumed: the names of actors are not used twice.
    DishonestOutcome,
}

impl Observable {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::RawOverlap,
        Self::InLeaseOverlap,
        Self::TokenRegression,
        Self::LostUpdate,
        Self::StaleWriteAccepted,
        Self::Stuck,
        Self::Stolen,
        Self::LostWakeup,
        Self::CountCorruption,
        Self::UnjustifiedBusy,
        Self::DishonestOutcome,
    ];

    /// Looks for it in the events, which need not be in order. It takes n log n steps.
    ///
    /// There is one violation for each hold, write or answer at fault, with the earlier event that it clashes with, and
    /// not one for each pair.
    #[must_use]
    pub fn find(self, events: &[Event]) -> Vec<Violation> {
        let mut in_order: Vec<&Event> = events.iter().collect();
        if !in_order.is_sorted_by_key(|event| event.t_ns) {
            in_order.sort_by_key(|event| event.t_ns);
        }
        let shown_by = match self {
            Self::RawOverlap => overlap::raw(&in_order),
            Self::InLeaseOverlap => overlap::in_lease(&in_order),
            Self::TokenRegression => token::regressions(&in_order),
            Self::LostUpdate => write::lost_updates(&in_order),
            Self::StaleWriteAccepted => write::stale_writes(&in_order),
            Self::Stuck => outcome::stuck(&in_order),
            Self::Stolen => outcome::stolen(&in_order),
            Self::LostWakeup => wake_up::lost(&in_order),
            Self::CountCorruption => count::corruptions(&in_order),
            Self::UnjustifiedBusy => busy::unjustified(&in_order),
            Self::DishonestOutcome => outcome::dishonest(&in_order),
        };
        shown_by
            .into_iter()
            .map(|events| Violation { observable: self, events: events.into_iter().cloned().collect() })
            .collect()
    }
}

impl fmt::Display for Observable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The events that show one violation, in order.
pub(super) type ShownBy<'a> = Vec<&'a Event>;

/// That something was seen to break, with the events that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// What was seen.
    pub observable: Observable,
    /// What shows it; never empty.
    pub events: Vec<Event>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.observable)?;
        for Event { t_ns, actor, key, op, phase, token, deadline_ns, value, position, .. } in &self.events {
            write!(f, " [{t_ns} ns, {actor}: {op:?} `{key}` {phase:?}")?;
            for (name, number) in
                [("token", token), ("deadline", deadline_ns), ("value", value), ("position", position)]
            {
                if let Some(number) = number {
                    write!(f, ", {name} {number}")?;
                }
            }
            f.write_str("]")?;
        }
        Ok(())
    }
}
