//! What happened to a lock, and whether it was right: a recorder and its checks.
//!
//! A [`History`] is a list of [`Event`]s by one clock. Each [`Observable`] is one way in which a lock can be seen to break;
//! [`Observable::find`] looks for it in the events, wherever they come from:
//!
//! | observable | what it sees |
//! | --- | --- |
//! | [`RawOverlap`](Observable::RawOverlap) | two who held at once |
//! | [`InLeaseOverlap`](Observable::InLeaseOverlap) | two who held at once, both within their leases |
//! | [`TokenRegression`](Observable::TokenRegression) | a later grant without a greater fencing token |
//! | [`LostUpdate`](Observable::LostUpdate) | a write that undid another's, unseen |
//! | [`StaleWriteAccepted`](Observable::StaleWriteAccepted) | a former holder's write after a later holder's |
//! | [`Stuck`](Observable::Stuck) | a lock that nobody can get |
//! | [`Stolen`](Observable::Stolen) | a lock that was gone before its lease was over |
//! | [`LostWakeup`](Observable::LostWakeup) | a waiter who slept on although the lock was free |
//! | [`CountCorruption`](Observable::CountCorruption) | a count of holds in the store that is not that of its holders |
//! | [`UnjustifiedBusy`](Observable::UnjustifiedBusy) | a "busy" for a lock that nobody had or wanted |
//! | [`DishonestOutcome`](Observable::DishonestOutcome) | an answer that was not so |
//!
//! ```
//! use std::time::Duration;
//!
//! use lock_core::{FencingToken, Moment, Release};
//! use lock_testkit::history::{History, Observable};
//!
//! let history = History::new();
//! let deadline = || Moment::now().saturating_add(Duration::from_secs(30));
//!
//! let a = history.actor("a").acquiring("orders/42").granted(Some(FencingToken::new(1)), deadline());
//! // A lock that is broken grants the same key twice.
//! let b = history.actor("b").acquiring("orders/42").granted(Some(FencingToken::new(2)), deadline());
//! a.releasing();
//! a.released(Release::Released);
//! b.releasing();
//!
//! let events = history.events();
//! assert_eq!(Observable::InLeaseOverlap.find(&events).len(), 1);
//! assert!(Observable::TokenRegression.find(&events).is_empty());
//! ```
//!
//! # Several processes
//!
//! Each process records what it does in a history of its own, on a clock that is the same for all, and tells it at once, so
//! that it has told all when it is killed. One process takes in what the others tell:
//!
//! ```
//! use std::io::BufRead;
//!
//! use lock_testkit::history::{History, Observable, read_jsonl, write_jsonl};
//!
//! # fn lab_ns() -> u64 { 7 }
//! # fn main() -> std::io::Result<()> {
//! # let (from_the_child, mut to_the_parent) = std::io::pipe()?;
//! // The child; its pipe is its standard output.
//! let history = History::on(lab_ns);
//! history.listen(move |event| {
//!     // Nobody is left to tell if the parent is gone.
//!     let _ = write_jsonl([event], &mut to_the_parent);
//! });
//! history.actor("a").acquiring("orders/42").busy();
//! # drop(history);
//!
//! // The parent. The last line of a process that was killed may lack its end.
//! let history = History::on(lab_ns);
//! for line in std::io::BufReader::new(from_the_child).lines() {
//!     read_jsonl(line?.as_bytes())?.into_iter().for_each(|event| history.absorb(event));
//! }
//! history.ended("a");
//! assert_eq!(Observable::UnjustifiedBusy.find(&history.events()).len(), 1);
//! # Ok(())
//! # }
//! ```

mod actor;
mod busy;
mod claims;
mod count;
mod counter;
mod event;
mod furthest;
mod observable;
mod outcome;
mod overlap;
mod token;
mod wake_up;
mod write;

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::Moment;
use nix::time::ClockId;

pub use self::actor::{Actor, Attempt, Hold, Probe};
pub use self::counter::GuardedCounter;
pub use self::event::{Event, Op, Phase, read_jsonl, write_jsonl};
pub use self::observable::{Observable, Violation};

/// A list of events by one clock, to which many tasks and threads write. Clones share one list.
///
/// An event takes about 150 bytes, and none is forgotten.
#[derive(Clone)]
pub struct History(Arc<Inner>);

struct Inner {
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    next_hold: AtomicU64,
    log: Mutex<Log>,
}

type Listener = Box<dyn FnMut(&Event) + Send>;

#[derive(Default)]
struct Log {
    events: Vec<Event>,
    listener: Option<Listener>,
}

impl History {
    /// An empty history on `CLOCK_BOOTTIME`, which is the same for all processes of one machine and counts suspend. Under
    /// tokio's paused time it is moved as that is.
    #[must_use]
    pub fn new() -> Self {
        let (start, start_ns) = same_instant();
        Self::on(move || start_ns.saturating_add(nanos(Moment::now().saturating_duration_since(start))))
    }

    /// An empty history on this clock: nanoseconds since any instant, which never step back. It must be the same clock for
    /// all whose events are put together.
    #[must_use]
    pub fn on(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        // Random above, so that the holds of several processes do not meet. From the system, because two processes that
        // start together must not draw the same.
        let next_hold = AtomicU64::new(RandomState::new().hash_one(0) << 32);
        Self(Arc::new(Inner { clock: Box::new(clock), next_hold, log: Mutex::default() }))
    }

    /// Has each event that is recorded or absorbed from now on told to `listener`, in order and before the recording call
    /// returns. There is one listener; another replaces it.
    ///
    /// It is called while the list is locked: it must not use this history, and while it blocks, so does everybody who
    /// records.
    pub fn listen(&self, listener: impl FnMut(&Event) + Send + 'static) {
        self.log().listener = Some(Box::new(listener));
    }

    /// Takes in an event that another history recorded on the same clock. Events may come in any order.
    pub fn absorb(&self, event: Event) {
        self.log().push(event);
    }

    /// Somebody who acts, by a name that is nobody else's.
    #[must_use]
    pub fn actor(&self, name: impl Into<Arc<str>>) -> Actor {
        Actor { history: self.clone(), name: name.into() }
    }

    /// The events until now, in the order of their times.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let mut events = self.log().events.clone();
        events.sort_by_key(|event| event.t_ns);
        events
    }

    /// Says that nobody acts any more under this name, such as a process that was killed: its holds end here.
    pub fn ended(&self, actor: impl Into<Arc<str>>) {
        self.record(&actor.into(), &Arc::from(""), Op::Stop, Phase::Ok, |_| {});
    }

    /// Says that the store names `actor` as the holder of `key` now.
    pub fn found_held_by(&self, key: impl Into<Arc<str>>, actor: impl Into<Arc<str>>) {
        self.record(&actor.into(), &key.into(), Op::Inspect, Phase::Ok, |_| {});
    }

    /// Says that the store counts `count` holds of `owner` on `key` now; the owner of an acquisition that named none is its
    /// actor. To be called when the owner neither acquires nor releases.
    pub fn found_count(&self, key: impl Into<Arc<str>>, owner: impl Into<Arc<str>>, count: u64) {
        self.record(&Arc::from(""), &key.into(), Op::Count, Phase::Ok, |event| {
            event.owner = Some(owner.into());
            event.value = Some(count);
        });
    }

    /// Says that nobody holds `key` in the store now, and that no request of an acquisition that has failed or whose actor
    /// has ended can still take it.
    pub fn found_free(&self, key: impl Into<Arc<str>>) {
        self.record(&Arc::from(""), &key.into(), Op::Free, Phase::Ok, |_| {});
    }

    /// As [`found_free`](Self::found_free), and that `waiter`, an actor, is the only one who waits for `key` and must have it
    /// within `bound`.
    pub fn found_free_for(&self, key: impl Into<Arc<str>>, waiter: impl Into<Arc<str>>, bound: Duration) {
        self.record(&waiter.into(), &key.into(), Op::Free, Phase::Ok, |event| event.must_be_by(bound));
    }

    fn record(&self, actor: &Arc<str>, key: &Arc<str>, op: Op, phase: Phase, fill: impl FnOnce(&mut Event)) {
        let mut log = self.log();
        // Read under the lock, so that the list is in the order of the clock.
        let mut event = Event::new((self.0.clock)(), Arc::clone(actor), Arc::clone(key), op, phase);
        fill(&mut event);
        log.push(event);
    }

    fn next_hold(&self) -> u64 {
        self.0.next_hold.fetch_add(1, Ordering::Relaxed)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn push(&mut self, event: Event) {
        if let Some(listener) = &mut self.listener {
            listener(&event);
        }
        self.events.push(event);
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").field("events", &self.log().events.len()).finish_non_exhaustive()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// One instant by both clocks: the best of ten readings, because a task may be put aside between two.
fn same_instant() -> (Moment, u64) {
    let boottime = || {
        let time = ClockId::CLOCK_BOOTTIME.now().expect("Linux has had CLOCK_BOOTTIME since 2.6.39");
        u64::try_from(Duration::from(time).as_nanos()).expect("a machine runs for less than 584 years")
    };
    let readings = (0..10).map(|_| {
        let before = boottime();
        let moment = Moment::now();
        let after = boottime();
        (after.saturating_sub(before), moment, before.midpoint(after))
    });
    let (_, moment, nanos) = readings.min_by_key(|(width, ..)| *width).expect("ten were taken");
    (moment, nanos)
}
