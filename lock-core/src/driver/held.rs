//! One lease as its holder sees it: until when it may act, and what is going on with it. No I/O.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::Driver;
use super::backoff::Backoff;
use super::queue::Place;
use crate::clock::sleep_until;
use crate::{Effect, Error, ErrorKind, Expiry, Grant, LossReason, Moment, Renewal, Result, lease};

/// A grant and the state of its lease.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) id: u64,
    pub(crate) grant: Grant,
    driver: Weak<Driver>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Until when the holder may act.
    deadline: Moment,
    /// Until when the store keeps the entry at least; later than `deadline` after the lease was shortened.
    kept_until: Moment,
    /// Where `max_hold` ends it.
    ends_at: Option<Moment>,
    ttl: Duration,
    /// The longest ttl that the store gave, or may have given; it is never sent a shorter one, because a late, shorter request
    /// would undercut a newer one.
    longest: Duration,
    renewed: bool,
    renew_at: Moment,
    backoff: Backoff,
    /// The ttl of the renewal in flight.
    renewing: Option<Duration>,
    extensions: Vec<Extension>,
    place: Option<Place>,
    /// Whether a copy of a request that acquires may still land.
    uncertain: bool,
    /// Whether the keeper has taken over to give it back.
    owed: bool,
    /// Whether the keeper has seen the loss.
    finished: bool,
    /// Its entry in the agenda.
    due: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Held,
    Lost(LossReason),
    GivenBack,
}

#[derive(Debug)]
struct Extension {
    ttl: Duration,
    /// Whether it is part of the renewal in flight.
    sent: bool,
    answer: oneshot::Sender<Result<()>>,
}

impl Held {
    pub(crate) fn new(id: u64, grant: Grant, driver: &Arc<Driver>, place: Place, uncertain: bool) -> Self {
        let lease = grant.claim.lease;
        let ttl = lease.ttl().min(grant.ttl);
        let kept_until = lease::deadline(grant.sent_at, grant.ttl);
        let state = State {
            phase: Phase::Held,
            deadline: lease::deadline(grant.sent_at, ttl),
            kept_until,
            ends_at: driver.options.max_hold.and_then(|limit| Moment::now().checked_add(limit)),
            ttl,
            longest: lease.ttl(),
            renewed: lease.is_renewed(),
            renew_at: grant.sent_at.saturating_add(ttl / 3),
            backoff: Backoff::of_renewal(ttl),
            renewing: None,
            extensions: Vec::new(),
            place: Some(place),
            uncertain,
            owed: false,
            finished: false,
            due: None,
        };
        Self { id, grant, driver: Arc::downgrade(driver), state: Mutex::new(state), changed: Notify::new() }
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.state().deadline()
    }

    /// Why it is no longer held, if so. A deadline that has passed is a loss from here on, whatever a late reply says.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        let now = Moment::now();
        let mut state = self.state();
        let was_held = state.phase == Phase::Held;
        let loss = state.loss(now);
        if was_held && loss.is_some() {
            self.changed.notify_waiters();
        }
        loss
    }

    /// Waits for the loss: by the clock of the caller, so it needs neither the keeper nor a reply.
    pub(crate) async fn lost(&self) -> LossReason {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(reason) = self.loss() {
                return reason;
            }
            if let Some(driver) = self.driver.upgrade() {
                driver.ensure_keeper();
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(self.deadline()) => {}
            }
        }
    }

    /// Ends the holding at once, for `reason`, unless it has ended already.
    pub(crate) fn lose(&self, reason: LossReason) {
        self.end(Phase::Lost(reason));
    }

    /// The holder gives it back: no renewal follows.
    pub(crate) fn give_back(&self) {
        self.loss();
        self.end(Phase::GivenBack);
    }

    /// Waits until no renewal is in flight, so that none overtakes what is sent next.
    pub(crate) async fn renewal_ended(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.state().renewing.is_none() {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the holding has ended in any way.
    pub(crate) async fn ended(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.state().phase != Phase::Held {
                return;
            }
            changed.await;
        }
    }

    /// Lets the next task of this process contend.
    pub(crate) fn free_place(&self) {
        let place = self.state().place.take();
        drop(place);
    }

    pub(crate) fn is_uncertain(&self) -> bool {
        self.state().uncertain
    }

    /// The longest ttl that the store was sent.
    pub(crate) fn longest_ttl(&self) -> Duration {
        self.state().longest
    }

    /// Notes that the keeper will give it back; false if it does already.
    pub(crate) fn owe(&self) -> bool {
        !std::mem::replace(&mut self.state().owed, true)
    }

    /// Wakes those who wait for a change, to look at the world again.
    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Brings the end nearer without asking the store, if `ttl` from now ends before the present deadline.
    pub(crate) fn shorten(&self, ttl: Duration) -> Result<bool, LossReason> {
        let now = Moment::now();
        let mut state = self.state();
        if let Some(reason) = state.loss(now) {
            return Err(reason);
        }
        let deadline = lease::deadline(now, ttl);
        if deadline >= state.deadline {
            return Ok(false);
        }
        state.deadline = deadline;
        state.ttl = ttl;
        state.renew_at = now.saturating_add(ttl / 3);
        self.changed.notify_waiters();
        Ok(true)
    }

    /// Asks the keeper for an extension.
    pub(crate) fn request_extension(&self, ttl: Duration) -> oneshot::Receiver<Result<()>> {
        let (answer, answered) = oneshot::channel();
        self.state().extensions.push(Extension { ttl, sent: false, answer });
        answered
    }

    /// If it is lost: lets the next task contend, and says whether the store must be told, because its entry would outlive the
    /// lease.
    pub(crate) fn take_loss(&self, expiry: Expiry) -> Option<bool> {
        let mut state = self.state();
        let outlives = match state.loss(Moment::now())? {
            // The release sees to the rest.
            LossReason::Released => return None,
            LossReason::Expired => expiry == Expiry::Session || state.deadline < state.kept_until,
            LossReason::MaxHold | LossReason::ShutDown => true,
            LossReason::NotHeld => false,
        };
        let owes = outlives && !state.owed;
        state.owed |= owes;
        state.finished = true;
        let (place, extensions) = (state.place.take(), std::mem::take(&mut state.extensions));
        self.changed.notify_waiters();
        drop(state);
        // Whoever waits for an extension sees its sender dropped and asks for the reason.
        drop((place, extensions));
        Some(owes)
    }

    /// Begins a renewal if one is due by `now`, or in the next thirtieth of the ttl; says with which ttl. One is in flight per
    /// lease, and an extension is one.
    pub(crate) fn begin_renewal(&self, now: Moment) -> Option<Duration> {
        let mut state = self.state();
        let soon = now.saturating_add(state.ttl / 30);
        let due = !state.extensions.is_empty() || (state.renewed && state.renew_at <= soon);
        if state.renewing.is_some() || !due {
            return None;
        }
        let mut ttl = state.longest;
        for extension in &mut state.extensions {
            extension.sent = true;
            ttl = ttl.max(extension.ttl);
        }
        state.renewing = Some(ttl);
        Some(ttl)
    }

    /// Takes the answer of a renewal. True if the lease was lost meanwhile and the late renewal made its entry outlive it.
    pub(crate) fn end_renewal(&self, answer: Result<Renewal>) -> bool {
        let now = Moment::now();
        let mut state = self.state();
        let sent = state.renewing.take().unwrap_or_default();
        if answer.as_ref().err().is_none_or(|error| error.effect() == Effect::Unknown) {
            state.longest = state.longest.max(sent);
        }
        let (answered, waiting): (Vec<_>, _) =
            std::mem::take(&mut state.extensions).into_iter().partition(|one| one.sent);
        state.extensions = waiting;
        let (outcome, owes) = match (state.loss(now), answer) {
            (Some(reason), answer) => {
                let owes = answer.is_ok() && reason != LossReason::Released && !state.owed;
                state.owed |= owes;
                (Err(self.lost_error("extend", reason)), owes)
            }
            (None, Ok(renewal)) => {
                if let Some(extension) = answered.last() {
                    state.ttl = extension.ttl;
                }
                state.restart(renewal);
                (Ok(()), false)
            }
            (None, Err(error)) => {
                if error.kind() == ErrorKind::Lost {
                    state.phase = Phase::Lost(LossReason::NotHeld);
                } else {
                    let pause = state.backoff.pause();
                    state.renew_at = now.saturating_add(pause);
                }
                (Err(error), false)
            }
        };
        for extension in answered {
            // The caller of `extend` may have gone.
            let _ = extension.answer.send(outcome.clone());
        }
        self.changed.notify_waiters();
        owes
    }

    /// When the keeper has to look next; none if there is nothing to keep.
    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.state().next_due()
    }

    /// Exchanges the entry in the agenda for `due`; returns the old one.
    pub(crate) fn replace_due(&self, due: Option<Moment>) -> Option<Moment> {
        std::mem::replace(&mut self.state().due, due)
    }

    pub(crate) fn lost_error(&self, operation: &'static str, reason: LossReason) -> Error {
        let backend = self.driver.upgrade();
        let backend = backend.as_ref().map_or("lock-core", |driver| driver.backend.name());
        let says = format!("the lock is lost: {reason}; stop the work that it guards");
        Error::new(ErrorKind::Lost, Effect::None, backend, operation, says).with_key(&self.grant.claim.key)
    }

    fn end(&self, phase: Phase) {
        let mut state = self.state();
        if state.phase == Phase::Held {
            state.phase = phase;
        }
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn deadline(&self) -> Moment {
        self.ends_at.map_or(self.deadline, |end| end.min(self.deadline))
    }

    fn loss(&mut self, now: Moment) -> Option<LossReason> {
        match self.phase {
            Phase::Lost(reason) => return Some(reason),
            Phase::GivenBack => return Some(LossReason::Released),
            Phase::Held => {}
        }
        let reason = if self.ends_at.is_some_and(|end| end <= now) {
            LossReason::MaxHold
        } else if self.deadline <= now {
            LossReason::Expired
        } else {
            return None;
        };
        self.phase = Phase::Lost(reason);
        Some(reason)
    }

    /// A renewal counts from its own send. It never brings the deadline nearer: the store was never sent a shorter ttl.
    fn restart(&mut self, renewal: Renewal) {
        let ttl = self.ttl.min(renewal.ttl);
        self.deadline = self.deadline.max(lease::deadline(renewal.sent_at, ttl));
        self.kept_until = self.kept_until.max(lease::deadline(renewal.sent_at, renewal.ttl));
        self.renew_at = renewal.sent_at.saturating_add(ttl / 3);
        self.backoff = Backoff::of_renewal(ttl);
    }

    fn next_due(&self) -> Option<Moment> {
        let end = self.deadline();
        match self.phase {
            Phase::Held => {}
            Phase::Lost(_) if !self.finished => return Some(end),
            Phase::Lost(_) | Phase::GivenBack => return None,
        }
        Some(match (self.renewing.is_some(), self.extensions.is_empty(), self.renewed) {
            (true, _, _) | (false, true, false) => end,
            (false, true, true) => end.min(self.renew_at),
            (false, false, _) => end.min(Moment::now()),
        })
    }
}
