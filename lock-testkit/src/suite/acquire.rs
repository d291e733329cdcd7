//! The contract of `Backend::try_acquire`.

use std::time::Duration;

use lock_core::{Backend, Effect, ErrorKind, Grant, Lease, Moment, Release, Result};

use super::Fixture;
use super::ground::{
    ROOM, another, assert_free, assert_held, claim, deadline, hold, hold_shortly, hold_soon, kept, key, long, renew,
    short, take,
};

pub(super) async fn free_is_granted(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let key = key("free");
    let grant = hold(fixture, &*ours, &key).await?;
    assert_held(fixture, &*ours, &key).await?;
    assert_held(fixture, &*theirs, &key).await?;
    assert_eq!(ours.release(&grant).await?, Release::Released);
    assert_free(fixture, &*theirs, &key).await
}

/// The ttl is as asked, rounded up to the store's step, and `sent_at` lies between our send and the store's own count.
pub(super) async fn grant_is_honest(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let asked = short(fixture) + fixture.guarantees().ttl_step / 2;
    let claim = claim(fixture, &key("honest"), asked);
    let before = Moment::now();
    let grant = take(&*client, &claim).await?;
    assert!((before..=Moment::now()).contains(&grant.sent_at), "{grant:?} was not sent during the call");
    assert_eq!(grant.ttl, kept(fixture, asked));
    assert_eq!(grant.claim.id, claim.id);
    assert_not_longer_than_the_store_says(&*client, &grant).await
}

/// Where the store tells how long the entry will live, the grant must not claim more. 10 ms are for clocks that count in
/// whole milliseconds.
async fn assert_not_longer_than_the_store_says(client: &dyn Backend, grant: &Grant) -> Result<()> {
    let seen = client.inspect(&grant.claim.key).await?;
    let Some(remaining) = seen.remaining else { return Ok(()) };
    assert!(remaining <= grant.ttl, "the store keeps {remaining:?} of {:?}", grant.ttl);
    let ends = Moment::now().saturating_add(remaining + Duration::from_millis(10));
    assert!(grant.sent_at.saturating_add(grant.ttl) <= ends, "the grant claims more than the store keeps");
    Ok(())
}

/// Seen from outside: nobody else gets the lock before the holder's deadline, and somebody does soon after it.
pub(super) async fn taken_until_the_deadline(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let key = key("until");
    let held = hold_shortly(fixture, &*ours, &key).await?;
    let (_, at) = hold_soon(fixture, &*theirs, &key, held.ttl + ROOM).await?;
    assert!(at >= deadline(held.sent_at, held.ttl), "granted to another before the holder's deadline");
    Ok(())
}

pub(super) async fn same_claim_counts_once(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let claim = claim(fixture, &key("again"), long(fixture));
    let first = take(&*ours, &claim).await?;
    let second = take(&*ours, &claim).await?;
    assert!(second.sent_at >= first.sent_at);
    assert_eq!(second.fencing_token, first.fencing_token);
    assert_held(fixture, &*theirs, &claim.key).await?;
    assert_eq!(ours.release(&second).await?, Release::Released);
    assert_free(fixture, &*theirs, &claim.key).await
}

/// The first grant's end passes, and nobody else gets the lock before the second's deadline.
pub(super) async fn same_claim_restarts_its_ttl(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let claim = claim(fixture, &key("restart"), short(fixture));
    let first = take(&*ours, &claim).await?;
    tokio::time::sleep(first.ttl / 2).await;
    let second = take(&*ours, &claim).await?;
    assert!(second.sent_at > first.sent_at);
    let (_, at) = hold_soon(fixture, &*theirs, &claim.key, second.ttl + ROOM).await?;
    assert!(at >= deadline(second.sent_at, second.ttl), "the repeat did not restart the ttl");
    Ok(())
}

/// Not idempotent: after a lost reply the claim finds the lock held, by itself.
pub(super) async fn same_claim_is_locked_out(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let claim = claim(fixture, &key("lockout"), long(fixture));
    let grant = take(&*client, &claim).await?;
    assert!(client.try_acquire(&claim).await?.is_none(), "the claim found its own grant");
    assert_eq!(client.release(&grant).await?, Release::Released);
    Ok(())
}

pub(super) async fn same_owner_is_granted_again(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let outer = hold(fixture, &*ours, &key("reenter")).await?;
    let inner = take(&*theirs, &another(&outer.claim)).await?;
    assert_eq!(inner.fencing_token, outer.fencing_token);
    assert_held(fixture, &*theirs, &outer.claim.key).await?;
    // In no order: the first grant may end first.
    assert_eq!(ours.release(&outer).await?, Release::Released);
    assert_held(fixture, &*theirs, &outer.claim.key).await?;
    renew(&*theirs, &inner, inner.ttl).await?;
    assert_eq!(theirs.release(&inner).await?, Release::Released);
    assert_free(fixture, &*theirs, &outer.claim.key).await
}

pub(super) async fn same_owner_is_refused(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let grant = hold(fixture, &*client, &key("refuse")).await?;
    assert!(client.try_acquire(&another(&grant.claim)).await?.is_none(), "it is re-entrant after all");
    assert_eq!(client.release(&grant).await?, Release::Released);
    assert_free(fixture, &*client, &grant.claim.key).await
}

pub(super) async fn failed_attempt_changes_nothing(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold_shortly(fixture, &*ours, &key("fail")).await?;
    let before = ours.inspect(&held.claim.key).await?;
    for _ in 0..3 {
        let attempt = claim(fixture, &held.claim.key, long(fixture));
        if let Some(early) = theirs.try_acquire(&attempt).await? {
            let ended = Moment::now() >= deadline(held.sent_at, held.ttl);
            assert!(ended, "a held lock was granted to another: {early:?}");
            return Ok(());
        }
    }
    let after = ours.inspect(&held.claim.key).await?;
    if after.held {
        assert_eq!((&after.holder, after.fencing_token), (&before.holder, before.fencing_token));
        assert!(after.remaining <= before.remaining, "a failed attempt prolonged the lock");
    }
    // Nor is anything left that would keep the lock beyond the holder's own ttl.
    hold_soon(fixture, &*theirs, &held.claim.key, held.ttl + ROOM).await?;
    Ok(())
}

pub(super) async fn ttl_out_of_range_is_refused(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let key = key("range");
    let below = fixture.guarantees().min_ttl.saturating_sub(Duration::from_nanos(1));
    for ttl in [Duration::ZERO, Duration::from_nanos(1), below, Lease::MAX_TTL + Duration::from_secs(1), Duration::MAX]
    {
        let mut claim = claim(fixture, &key, ttl);
        for lease in [Lease::fixed(ttl), Lease::renewed(ttl)] {
            claim.lease = lease;
            let tried = client.try_acquire(&claim).await.expect_err("a ttl that the store cannot keep");
            let waited = client.acquire(&claim, &lock_core::Stop::new()).await.expect_err("waiting does not help");
            for error in [tried, waited] {
                assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None), "{ttl:?}: {error}");
            }
        }
    }
    assert_free(fixture, &*client, &key).await
}

pub(super) async fn the_minimum_is_granted(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let minimum = fixture.guarantees().min_ttl;
    let grant = take(&*client, &claim(fixture, &key("minimum"), minimum)).await?;
    assert_eq!(grant.ttl, kept(fixture, minimum));
    let (_, at) = hold_soon(fixture, &*client, &grant.claim.key, minimum + ROOM).await?;
    assert!(at >= deadline(grant.sent_at, grant.ttl));
    Ok(())
}
