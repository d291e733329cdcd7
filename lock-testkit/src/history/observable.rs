use std::fmt;

use super::event::Event;
use super::{outcome, overlap, token, write};

/// One way in which a lock can be seen to break. The names are those of the fault catalogue in `docs/safety.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Observable {
    /// Two held at once, from the grant to the beginning of the release, whatever their deadlines said. No lease can
    /// rule this out: a holder may be paused.
    RawOverlap,
    /// Two held at once although neither was past its deadline.
    InLeaseOverlap,
    /// A later grant of a key has no greater fencing token than an earlier one.
    TokenRegression,
    /// A write of the guarded resource was based on a value that another had replaced meanwhile.
    LostUpdate,
    /// A fenced resource accepted an older token after a newer one.
    StaleWriteAccepted,
    /// A fresh client could not get the lock in time.
    Stuck,
    /// A lock was gone before its holder's deadline, without the holder's doing.
    Stolen,
    /// A release said "released" for a lock that was another's or known to be lost, or an acquire said that it failed
    /// without effect, and the lock was ours.
    DishonestOutcome,
}

impl Observable {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::RawOverlap,
        Self::InLeaseOverlap,
        Self::TokenRegression,
        Self::LostUpdate,
        Self::StaleWriteAccepted,
        Self::Stuck,
        Self::Stolen,
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
        for Event { t_ns, actor, key, op, phase, token, deadline_ns, value, .. } in &self.events {
            write!(f, " [{t_ns} ns, {actor}: {op:?} `{key}` {phase:?}")?;
            for (name, number) in [("token", token), ("deadline", deadline_ns), ("value", value)] {
                if let Some(number) = number {
                    write!(f, ", {name} {number}")?;
                }
            }
            f.write_str("]")?;
        }
        Ok(())
    }
}
