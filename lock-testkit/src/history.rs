//! What happened to a lock, and whether it was right: a recorder and its checks.
//!
//! A [`History`] is a list of [`Event`]s by one clock. Each [`Observable`] is one way in which a lock can be seen to break;
//! [`Observable::find`] looks for it in the events, wherever they come from.
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

mod counter;
mod event;
mod holds;
mod observable;
mod outcome;
mod overlap;
mod token;
mod write;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{Effect, FencingToken, Moment, Release};
use nix::time::ClockId;

pub use self::counter::GuardedCounter;
pub use self::event::{Event, Op, Phase, read_jsonl, write_jsonl};
pub use self::observable::{Observable, Violation};

/// A list of events by one clock, to which many tasks and threads write. Clones share one list.
///
/// The clock is `CLOCK_BOOTTIME`, the same for all processes of one machine; under tokio's paused time it is moved as
/// that is. An event takes about 130 bytes, and none is forgotten.
#[derive(Clone, Debug)]
pub struct History(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// One instant, by both clocks.
    start: (Moment, u64),
    next_hold: AtomicU64,
    events: Mutex<Vec<Event>>,
}

impl History {
    /// An empty history.
    #[must_use]
    pub fn new() -> Self {
        // Random above, so that the holds of several processes do not meet.
        let next_hold = AtomicU64::new(u64::from(fastrand::u32(..)) << 32);
        Self(Arc::new(Inner { start: same_instant(), next_hold, events: Mutex::default() }))
    }

    /// Somebody who acts, by a name that is nobody else's.
    #[must_use]
    pub fn actor(&self, name: impl Into<Arc<str>>) -> Actor {
        Actor { history: self.clone(), name: name.into() }
    }

    /// The events until now, in order.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.lock().clone()
    }

    /// Says that nobody acts any more under this name, such as a process that was killed: its holds end here.
    pub fn ended(&self, actor: impl Into<Arc<str>>) {
        self.record(&actor.into(), &Arc::from(""), Op::Stop, Phase::Ok, |_| {});
    }

    /// Says that the store names `actor` as the holder of `key` now.
    pub fn found_held_by(&self, key: impl Into<Arc<str>>, actor: impl Into<Arc<str>>) {
        self.record(&actor.into(), &key.into(), Op::Inspect, Phase::Ok, |_| {});
    }

    /// A moment as the events count it.
    fn nanos(&self, moment: Moment) -> u64 {
        let (start, start_ns) = self.0.start;
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let after = nanos(moment.saturating_duration_since(start));
        let before = nanos(start.saturating_duration_since(moment));
        start_ns.saturating_add(after).saturating_sub(before)
    }

    fn record(&self, actor: &Arc<str>, key: &Arc<str>, op: Op, phase: Phase, fill: impl FnOnce(&mut Event)) {
        let mut event = Event {
            t_ns: 0,
            actor: Arc::clone(actor),
            key: Arc::clone(key),
            op,
            phase,
            hold: None,
            owner: None,
            token: None,
            deadline_ns: None,
            value: None,
        };
        fill(&mut event);
        let mut events = self.lock();
        // Read under the lock, so that the list is in the order of the clock.
        event.t_ns = self.nanos(Moment::now());
        events.push(event);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Event>> {
        self.0.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}

/// Somebody who acts and writes it down.
#[derive(Clone, Debug)]
pub struct Actor {
    history: History,
    name: Arc<str>,
}

impl Actor {
    /// It begins to acquire `key`. To be called before the request is sent.
    pub fn acquiring(&self, key: impl Into<Arc<str>>) -> Attempt {
        self.attempt(key.into(), None)
    }

    /// It begins to acquire `key` for an owner who may hold it more than once.
    pub fn acquiring_for(&self, key: impl Into<Arc<str>>, owner: impl Into<Arc<str>>) -> Attempt {
        self.attempt(key.into(), Some(owner.into()))
    }

    /// A fresh client begins to acquire `key`, which must succeed within `bound`.
    pub fn probing(&self, key: impl Into<Arc<str>>, bound: Duration) -> Probe {
        let probe = Probe { actor: self.clone(), key: key.into() };
        let deadline = Moment::now().saturating_add(bound);
        let deadline = Some(self.history.nanos(deadline));
        self.record(&probe.key, Op::Probe, Phase::Invoke, |event| event.deadline_ns = deadline);
        probe
    }

    /// It has read `value` from the guarded resource.
    pub fn read(&self, resource: impl Into<Arc<str>>, value: u64) {
        self.record(&resource.into(), Op::Read, Phase::Ok, |event| event.value = Some(value));
    }

    /// It has written `value` to the guarded resource.
    pub fn wrote(&self, resource: impl Into<Arc<str>>, value: u64) {
        self.record(&resource.into(), Op::Write, Phase::Ok, |event| event.value = Some(value));
    }

    /// It has written to a resource that checks fencing tokens, which accepted or refused it.
    pub fn wrote_fenced(&self, resource: impl Into<Arc<str>>, token: FencingToken, accepted: bool) {
        let phase = if accepted { Phase::Ok } else { Phase::Fail };
        self.record(&resource.into(), Op::Write, phase, |event| event.token = Some(token.value()));
    }

    fn attempt(&self, key: Arc<str>, owner: Option<Arc<str>>) -> Attempt {
        let hold = self.history.0.next_hold.fetch_add(1, Ordering::Relaxed);
        let hold = Hold { actor: self.clone(), key, owner, number: hold };
        hold.record(Op::Acquire, Phase::Invoke, |_| {});
        Attempt(hold)
    }

    fn record(&self, key: &Arc<str>, op: Op, phase: Phase, fill: impl FnOnce(&mut Event)) {
        self.history.record(&self.name, key, op, phase, fill);
    }
}

/// An acquisition that has begun. One that gets no answer, because its actor was killed, is just dropped.
#[derive(Debug)]
#[must_use = "its outcome is to be recorded"]
pub struct Attempt(Hold);

impl Attempt {
    /// It was granted, and lets its holder act until `deadline`. To be called as soon as the answer is here.
    pub fn granted(self, token: Option<FencingToken>, deadline: Moment) -> Hold {
        let deadline = self.0.actor.history.nanos(deadline);
        self.0.record(Op::Acquire, Phase::Ok, |event| {
            event.token = token.map(FencingToken::value);
            event.deadline_ns = Some(deadline);
        });
        self.0
    }

    /// Somebody else holds the lock.
    pub fn busy(self) {
        self.0.record(Op::Acquire, Phase::Busy, |_| {});
    }

    /// It failed, with this effect.
    pub fn failed(self, effect: Effect) {
        self.0.record(Op::Acquire, failure(effect), |_| {});
    }
}

/// A lock that is held, until its holder gives it back or stops.
#[derive(Debug)]
pub struct Hold {
    actor: Actor,
    key: Arc<str>,
    owner: Option<Arc<str>>,
    number: u64,
}

impl Hold {
    /// The lease was renewed or extended: its holder may act until `deadline`.
    pub fn renewed(&self, deadline: Moment) {
        let deadline = self.actor.history.nanos(deadline);
        self.record(Op::Renew, Phase::Ok, |event| event.deadline_ns = Some(deadline));
    }

    /// The store has answered a renewal that the lock is not ours.
    pub fn renewal_lost(&self) {
        self.record(Op::Renew, Phase::NotHeld, |_| {});
    }

    /// The holder has ceased to act, without giving the lock back: it has noticed a loss.
    pub fn stopped(&self) {
        self.record(Op::Stop, Phase::Ok, |_| {});
    }

    /// The holder ceases to act and begins to give the lock back. To be called before the request is sent.
    pub fn releasing(&self) {
        self.record(Op::Release, Phase::Invoke, |_| {});
    }

    /// What the release has answered.
    pub fn released(&self, answer: Release) {
        let phase = match answer {
            Release::Released => Phase::Ok,
            Release::NotHeld => Phase::NotHeld,
        };
        self.record(Op::Release, phase, |_| {});
    }

    /// The release failed, with this effect.
    pub fn release_failed(&self, effect: Effect) {
        self.record(Op::Release, failure(effect), |_| {});
    }

    fn record(&self, op: Op, phase: Phase, fill: impl FnOnce(&mut Event)) {
        self.actor.record(&self.key, op, phase, |event| {
            event.hold = Some(self.number);
            event.owner.clone_from(&self.owner);
            fill(event);
        });
    }
}

/// A fresh client that tries to get a lock which must be free by now.
#[derive(Debug)]
#[must_use = "its outcome is to be recorded"]
pub struct Probe {
    actor: Actor,
    key: Arc<str>,
}

impl Probe {
    /// It got the lock.
    pub fn succeeded(self) {
        self.actor.record(&self.key, Op::Probe, Phase::Ok, |_| {});
    }

    /// It did not get the lock.
    pub fn gave_up(self) {
        self.actor.record(&self.key, Op::Probe, Phase::Busy, |_| {});
    }
}

const fn failure(effect: Effect) -> Phase {
    match effect {
        Effect::None => Phase::Fail,
        Effect::Unknown => Phase::Unknown,
    }
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
