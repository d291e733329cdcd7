use std::sync::Arc;
use std::time::Duration;

use lock_core::{Effect, FencingToken, Moment, Release};

use super::{Event, History, Op, Phase};

/// Somebody who acts and writes it down.
#[derive(Clone, Debug)]
pub struct Actor {
    pub(super) history: History,
    pub(super) name: Arc<str>,
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
        self.record(&probe.key, Op::Probe, Phase::Invoke, |event| event.must_be_by(bound));
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
        self.record(&resource.into(), Op::Write, verdict(accepted), |event| event.token = Some(token.value()));
    }

    fn attempt(&self, key: Arc<str>, owner: Option<Arc<str>>) -> Attempt {
        let number = self.history.next_hold();
        let hold = Hold { actor: self.clone(), key, owner, number, token: None };
        hold.record(Op::Acquire, Phase::Invoke, |_| {});
        Attempt(hold)
    }

    fn record(&self, key: &Arc<str>, op: Op, phase: Phase, fill: impl FnOnce(&mut Event)) {
        self.history.record(&self.name, key, op, phase, fill);
    }
}

/// An acquisition that has begun. One that gets no answer, because its actor was killed, is just dropped; one that its actor
/// no longer waits for has [failed](Self::failed) with an unknown effect.
#[derive(Debug)]
#[must_use = "its outcome is to be recorded"]
pub struct Attempt(Hold);

impl Attempt {
    /// It was granted, and lets its holder act until `deadline`. To be called as soon as the answer is here.
    ///
    /// Of `deadline`, as of every [`Moment`] that is recorded, what is left of it now by this process's clock is added to
    /// now by the history's: the two clocks need not agree.
    pub fn granted(mut self, token: Option<FencingToken>, deadline: Moment) -> Hold {
        self.0.token = token.map(FencingToken::value);
        let token = self.0.token;
        self.0.record(Op::Acquire, Phase::Ok, |event| {
            event.token = token;
            event.lasts_until(deadline);
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
    token: Option<u64>,
}

impl Hold {
    /// The lease was renewed or extended: its holder may act until `deadline`.
    pub fn renewed(&self, deadline: Moment) {
        self.record(Op::Renew, Phase::Ok, |event| event.lasts_until(deadline));
    }

    /// The store has answered a renewal that the lock is not ours.
    pub fn renewal_lost(&self) {
        self.record(Op::Renew, Phase::NotHeld, |_| {});
    }

    /// The renewal failed, with this effect.
    pub fn renewal_failed(&self, effect: Effect) {
        self.record(Op::Renew, failure(effect), |_| {});
    }

    /// The holder still believes that it holds the lock, until `deadline`: say, after a pause, its guard says "held".
    ///
    /// The belief counts, also where it is wrong because the clock of the holder's process stood still. If `deadline` has
    /// passed meanwhile, it does not count.
    pub fn affirmed(&self, deadline: Moment) {
        self.record(Op::Affirm, Phase::Ok, |event| event.lasts_until(deadline));
    }

    /// The holder has written to a resource, which accepted or refused it, whether or not it checks tokens. The event bears
    /// the token of the grant, if there was one.
    ///
    /// Where several processes write at the same time, only the resource knows the order: [`wrote_as`](Self::wrote_as).
    pub fn wrote(&self, resource: impl Into<Arc<str>>, accepted: bool) {
        self.write(&resource.into(), verdict(accepted), None);
    }

    /// The holder has written to a resource, which accepted it as its `position`-th write by its own count.
    pub fn wrote_as(&self, resource: impl Into<Arc<str>>, position: u64) {
        self.write(&resource.into(), Phase::Ok, Some(position));
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

    fn write(&self, resource: &Arc<str>, phase: Phase, position: Option<u64>) {
        self.actor.record(resource, Op::Write, phase, |event| {
            event.hold = Some(self.number);
            event.token = self.token;
            event.position = position;
        });
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

const fn verdict(accepted: bool) -> Phase {
    if accepted { Phase::Ok } else { Phase::Fail }
}
