//! What an actor's driver takes for its backend: requests go out by the lab, which decides what becomes of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Flaw;
use super::store::{Answer, Op};
use crate::wait::{self, Attempt};
use crate::{
    Backend, Claim, ClaimId, Effect, Error, ErrorKind, Exclusion, Expiry, Fencing, Grant, Guarantees, Inspection,
    LockKey, Moment, NodeFailure, OwnerCheck, Release, Renew, Renewal, Result, Stop, Undone, WakeUp, lease,
};

/// A backend whose one store is the lab's.
#[derive(Debug)]
pub(super) struct Link {
    outbox: Arc<Outbox>,
    /// How long an answer is waited for.
    limit: Duration,
    flaw: Option<Flaw>,
}

/// What has been sent and not yet taken by the lab.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    letters: Mutex<Vec<Letter>>,
    pub(super) sent: Notify,
}

#[derive(Debug)]
pub(super) struct Letter {
    pub(super) op: Op,
    pub(super) claim: ClaimId,
    pub(super) ttl: Duration,
    /// Dropped if no answer will come, which the sender does not notice.
    pub(super) reply: oneshot::Sender<Answer>,
}

impl Outbox {
    pub(super) fn take(&self) -> Vec<Letter> {
        std::mem::take(&mut self.letters())
    }

    fn letters(&self) -> MutexGuard<'_, Vec<Letter>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    pub(super) fn new(outbox: &Arc<Outbox>, limit: Duration, flaw: Option<Flaw>) -> Self {
        Self { outbox: Arc::clone(outbox), limit, flaw }
    }

    /// Sends one request and waits for its answer; `None` for a no.
    async fn ask(&self, op: Op, claim: &Claim, ttl: Duration) -> Result<std::result::Result<(), Option<Duration>>> {
        let over = Instant::now() + self.limit;
        let (reply, answered) = oneshot::channel();
        self.outbox.letters().push(Letter { op, claim: claim.id, ttl, reply });
        self.outbox.sent.notify_one();
        match timeout_at(over, answered).await {
            Ok(Ok(Answer::Yes)) => return Ok(Ok(())),
            Ok(Ok(Answer::No(remaining))) => return Ok(Err(remaining)),
            Ok(Ok(Answer::Refused)) => return Err(error(ErrorKind::Unavailable, Effect::None, "nobody listens")),
            Ok(Err(_lost)) => sleep_until(over).await,
            Err(_elapsed) => {}
        }
        Err(error(ErrorKind::Unavailable, Effect::Unknown, "no answer"))
    }

    async fn attempt(&self, claim: &Claim) -> Result<Attempt> {
        let sent_at = Moment::now();
        let ttl = claim.lease.ttl();
        Ok(match self.ask(Op::Acquire, claim, ttl).await? {
            Ok(()) => Attempt::Granted(Grant::new(claim.clone(), self.counted_from(sent_at, ttl), ttl)),
            Err(remaining) => Attempt::Busy { remaining },
        })
    }

    async fn renew_one(&self, renew: &Renew<'_>) -> Result<Renewal> {
        let sent_at = Moment::now();
        match self.ask(Op::Renew, &renew.grant.claim, renew.ttl).await? {
            Ok(()) => Ok(Renewal::new(self.counted_from(sent_at, renew.ttl), renew.ttl)),
            Err(_) => Err(error(ErrorKind::Lost, Effect::None, "not ours")),
        }
    }

    /// What the lease of a request is counted from that was sent at `sent_at` and is answered now.
    fn counted_from(&self, sent_at: Moment, ttl: Duration) -> Moment {
        match self.flaw {
            Some(Flaw::DeadlineFromReply) => Moment::now(),
            // The driver takes off what is put on here.
            Some(Flaw::NoDriftAllowance) => sent_at.saturating_add(lease::drift(ttl)),
            _ => sent_at,
        }
    }
}

#[async_trait]
impl Backend for Link {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            exclusion: Exclusion::WhileLeaseHolds,
            fencing: Fencing::None,
            fair: false,
            reentrant: false,
            idempotent_acquire: true,
            release_check: OwnerCheck::Atomic,
            renew_check: OwnerCheck::Atomic,
            frees_after_crash: true,
            trusts_client_clock: false,
            wake_up: WakeUp::Push,
            node_failure: NodeFailure::EndsHolders,
            expiry: Expiry::Entry,
            min_ttl: Duration::from_millis(10),
            ttl_step: Duration::from_millis(1),
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        Ok(match self.attempt(claim).await? {
            Attempt::Granted(grant) => Some(grant),
            Attempt::Busy { .. } => None,
        })
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        // All its messages are lost, so a waiter comes back when the holder's entry must have ended: the sharpest moment.
        let subscribe = async || Ok(Arc::new(Notify::new()));
        wait::notified(stop, || self.attempt(claim), subscribe).await
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        join_all(batch.iter().map(|renew| self.renew_one(renew))).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        let op = if self.flaw == Some(Flaw::BlindRelease) { Op::BlindRelease } else { Op::Release };
        Ok(match self.ask(op, &grant.claim, Duration::ZERO).await? {
            Ok(()) => Release::Released,
            Err(_) => Release::NotHeld,
        })
    }

    async fn abandon(&self, claim: &Claim) -> Result<Undone> {
        let _was_there = self.ask(Op::Abandon, claim, Duration::ZERO).await?;
        Ok(Undone::MayStillLand)
    }

    async fn inspect(&self, _: &LockKey) -> Result<Inspection> {
        Err(unsupported())
    }

    async fn list(&self, _: &str) -> Result<Vec<LockKey>> {
        Err(unsupported())
    }

    async fn force_release(&self, _: &LockKey) -> Result<Release> {
        Err(unsupported())
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

fn unsupported() -> Error {
    error(ErrorKind::Unsupported, Effect::None, "no actor asks for this")
}

fn error(kind: ErrorKind, effect: Effect, says: &str) -> Error {
    Error::new(kind, effect, "simulated", "simulated", says)
}
