//! What the trials stand on: fresh keys, leases that suit the backend, and looks at a lock from outside.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{
    Backend, Claim, ClaimId, ErrorKind, Grant, Lease, LockKey, Moment, Owner, Release, Renew, Renewal, Result, Stop,
};
use tokio::task::JoinHandle;

use super::Fixture;

/// How much later than it should something may happen before it counts as not happening. Far below [`long`].
pub(super) const ROOM: Duration = Duration::from_secs(8);

/// How often a trial looks.
const TICK: Duration = Duration::from_millis(5);

/// A key that no other trial uses, on a line of its own in any listing.
pub(super) fn key(stem: &str) -> LockKey {
    LockKey::new(format!("{stem}-{}", nonce())).expect("a stem is short and has no control character")
}

/// Text that occurs once.
pub(super) fn nonce() -> String {
    format!("{:032x}", ClaimId::random().bits())
}

/// A ttl that a trial can wait for.
pub(super) fn short(fixture: &dyn Fixture) -> Duration {
    kept(fixture, Duration::from_millis(300))
}

/// A ttl that a busy machine can keep alive.
pub(super) fn steady(fixture: &dyn Fixture) -> Duration {
    kept(fixture, Duration::from_millis(1_500))
}

/// A ttl that does not end within a trial.
pub(super) fn long(fixture: &dyn Fixture) -> Duration {
    kept(fixture, Duration::from_secs(40))
}

/// What the store makes of a ttl: at least its minimum, rounded up to its step.
pub(super) fn kept(fixture: &dyn Fixture, ttl: Duration) -> Duration {
    let guarantees = fixture.guarantees();
    let (ttl, step) = (ttl.max(guarantees.min_ttl).as_nanos(), guarantees.ttl_step.as_nanos());
    let nanos = ttl.div_ceil(step) * step;
    Duration::from_nanos(u64::try_from(nanos).expect("a trial's ttl is far below 500 years"))
}

/// Until when a holder may act: the rule, written a second time on purpose.
pub(super) fn deadline(sent_at: Moment, ttl: Duration) -> Moment {
    let safe = ttl.saturating_sub(ttl / 100 + Duration::from_millis(2));
    sent_at.saturating_add(Duration::from_millis(u64::try_from(safe.as_millis()).unwrap_or(u64::MAX)))
}

/// A claim of a new owner. A long lease is a renewed one, because some stores keep only those for long.
pub(super) fn claim(fixture: &dyn Fixture, key: &LockKey, ttl: Duration) -> Claim {
    let lease = if ttl < long(fixture) { Lease::fixed(ttl) } else { Lease::renewed(ttl) };
    Claim::new(key.clone(), Owner::random(), lease)
}

/// The same owner's next claim.
pub(super) fn another(claim: &Claim) -> Claim {
    Claim::new(claim.key.clone(), claim.owner, claim.lease)
}

/// Takes a lock that must be free.
pub(super) async fn take(client: &dyn Backend, claim: &Claim) -> Result<Grant> {
    Ok(client.try_acquire(claim).await?.expect("a free lock is granted"))
}

/// Takes the free lock for a new owner until the trial is over.
pub(super) async fn hold(fixture: &dyn Fixture, client: &dyn Backend, key: &LockKey) -> Result<Grant> {
    take(client, &claim(fixture, key, long(fixture))).await
}

/// Takes the free lock for a new owner that never renews.
pub(super) async fn hold_shortly(fixture: &dyn Fixture, client: &dyn Backend, key: &LockKey) -> Result<Grant> {
    take(client, &claim(fixture, key, short(fixture))).await
}

/// Takes the lock for a new owner as soon as it is free, which must be soon; also when the answer had come.
pub(super) async fn hold_soon(
    fixture: &dyn Fixture,
    client: &dyn Backend,
    key: &LockKey,
    within: Duration,
) -> Result<(Grant, Moment)> {
    let claim = claim(fixture, key, long(fixture));
    let limit = Moment::now().saturating_add(within);
    loop {
        if let Some(grant) = client.try_acquire(&claim).await? {
            return Ok((grant, Moment::now()));
        }
        assert!(Moment::now() < limit, "`{key}` is still held after {within:?}");
        tokio::time::sleep(TICK).await;
    }
}

/// Checks that somebody has the lock.
pub(super) async fn assert_held(fixture: &dyn Fixture, client: &dyn Backend, key: &LockKey) -> Result<()> {
    let other = claim(fixture, key, short(fixture));
    assert!(client.try_acquire(&other).await?.is_none(), "`{key}` was granted although it is held");
    Ok(())
}

/// Checks that nobody has the lock, by taking it and giving it back.
pub(super) async fn assert_free(fixture: &dyn Fixture, client: &dyn Backend, key: &LockKey) -> Result<()> {
    let grant = client.try_acquire(&claim(fixture, key, long(fixture))).await?;
    let grant = grant.unwrap_or_else(|| panic!("`{key}` is held although it should be free"));
    assert_eq!(client.release(&grant).await?, Release::Released);
    Ok(())
}

/// One renewal.
pub(super) async fn renew(client: &dyn Backend, grant: &Grant, ttl: Duration) -> Result<Renewal> {
    let mut answers = client.renew(&[Renew::new(grant, ttl)]).await;
    assert_eq!(answers.len(), 1, "one renewal has one answer");
    answers.remove(0)
}

/// Checks that an answer is the error `Lost`.
pub(super) fn assert_lost<T: std::fmt::Debug>(answer: Result<T>) {
    assert_eq!(answer.expect_err("the lock is lost").kind(), ErrorKind::Lost);
}

/// A wait that runs beside the trial.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) claim: Claim,
    stop: Stop,
    wait: JoinHandle<Result<Option<Grant>>>,
}

impl Waiter {
    /// Begins to wait for a lock that is held, and returns when the backend has said that it waits.
    pub(super) async fn start(client: Arc<dyn Backend>, claim: Claim) -> Self {
        let stop = Stop::new();
        let wait = tokio::spawn({
            let (claim, stop) = (claim.clone(), stop.clone());
            async move { client.acquire(&claim, &stop).await }
        });
        let waiter = Self { claim, stop, wait };
        eventually("the backend reports that it waits", async || waiter.stop.is_waiting()).await;
        assert!(!waiter.wait.is_finished(), "a wait for a held lock has ended");
        waiter
    }

    /// Tells the wait to end.
    pub(super) fn stop(&self) {
        self.stop.fire();
    }

    /// Whether the wait has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.wait.is_finished()
    }

    /// How the wait ended, which must be soon.
    pub(super) async fn ended(self) -> Result<Option<Grant>> {
        let ended = tokio::time::timeout(ROOM, self.wait).await;
        ended.expect("the wait ends soon").expect("the wait does not panic")
    }

    /// What the wait brought, which must be a grant, and soon.
    pub(super) async fn granted(self) -> Result<Grant> {
        Ok(self.ended().await?.expect("a wait ends without a grant only after a stop"))
    }
}

/// Looks until it is so.
pub(super) async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let limit = Moment::now().saturating_add(ROOM);
    while !so().await {
        assert!(Moment::now() < limit, "not within {ROOM:?}: {what}");
        tokio::time::sleep(TICK).await;
    }
}
