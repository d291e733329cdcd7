//! The rules of a lease, seen by a user of `Locks` on the real store.

use std::time::Duration;

use lock_core::{ErrorKind, Lease, LockGuard, LockKey, Locks, LossReason, Moment, Options, Release, Result};

use super::Fixture;
use super::ground::{ROOM, assert_free, assert_held, assert_lost, deadline, hold_soon, kept, key, long, short, steady};

/// A new client's locks, with the default options.
pub(super) async fn locks(fixture: &dyn Fixture) -> Locks {
    Locks::with_options(fixture.connect().await, Options::default())
}

async fn take(locks: &Locks, key: &LockKey, lease: Lease) -> Result<LockGuard> {
    Ok(locks.lock(key)?.lease(lease).try_acquire().await?.expect("a free lock is granted"))
}

/// Waits until the guard's lock is lost, which must be soon.
async fn lost(guard: &LockGuard, within: Duration) -> LossReason {
    tokio::time::timeout(within, guard.lost()).await.expect("the lock is lost soon")
}

/// The deadline counts from our send, less the drift, and never from the reply.
pub(super) async fn deadline_counts_from_the_send(fixture: &dyn Fixture) -> Result<()> {
    let locks = locks(fixture).await;
    for ttl in [steady(fixture), kept(fixture, Duration::from_millis(12_345)), kept(fixture, Duration::from_secs(35))] {
        let before = Moment::now();
        let guard = take(&locks, &key("deadline"), Lease::fixed(ttl)).await?;
        let (earliest, latest) = (deadline(before, ttl), deadline(Moment::now(), ttl));
        let found = guard.deadline();
        assert!((earliest..=latest).contains(&found), "the deadline for {ttl:?} does not lie where it should");
        assert_eq!(guard.release().await?, Release::Released);
    }
    Ok(())
}

pub(super) async fn a_fixed_lease_ends_by_itself(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let guard = take(&locks, &key("fixed"), Lease::fixed(short(fixture))).await?;
    let end = guard.deadline();
    assert_eq!(lost(&guard, short(fixture) + ROOM).await, LossReason::Expired);
    assert!(Moment::now() >= end, "lost before the deadline");
    assert!(!guard.is_held() && guard.remaining().is_zero());
    hold_soon(fixture, &*others, guard.key(), short(fixture) + ROOM).await?;
    Ok(())
}

pub(super) async fn a_renewed_lease_outlives_several_ttls(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let ttl = steady(fixture);
    let guard = take(&locks, &key("renewed"), Lease::renewed(ttl)).await?;
    let first = guard.deadline();
    tokio::time::sleep(ttl * 3).await;
    assert!(guard.is_held() && guard.deadline() > first);
    assert!(guard.remaining() <= ttl);
    assert_held(fixture, &*others, guard.key()).await?;
    let key = guard.key().clone();
    assert_eq!(guard.release().await?, Release::Released);
    assert_free(fixture, &*others, &key).await
}

pub(super) async fn extending_replaces_the_lease(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let ttl = kept(fixture, Duration::from_secs(3));
    let guard = take(&locks, &key("extend"), Lease::fixed(ttl)).await?;
    for _ in 0..100 {
        guard.extend(ttl).await?;
        assert!(guard.remaining() <= ttl);
    }
    if let Some(remaining) = others.inspect(guard.key()).await?.remaining {
        assert!(remaining <= ttl, "the store keeps {remaining:?} of {ttl:?}");
    }
    assert_eq!(lost(&guard, ttl + ROOM).await, LossReason::Expired);
    hold_soon(fixture, &*others, guard.key(), ttl + ROOM).await?;
    Ok(())
}

pub(super) async fn an_extended_lease_is_longer(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let guard = take(&locks, &key("extended"), Lease::fixed(steady(fixture))).await?;
    let before = guard.deadline();
    guard.extend(long(fixture)).await?;
    assert!(guard.deadline() > before);
    tokio::time::sleep(steady(fixture) + Duration::from_millis(100)).await;
    assert!(guard.is_held());
    assert_held(fixture, &*others, guard.key()).await?;
    assert_eq!(guard.release().await?, Release::Released);
    Ok(())
}

/// Shortening is local: the deadline comes nearer at once, and the lock is given back then.
pub(super) async fn a_shortened_lease_ends_early(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let guard = take(&locks, &key("shorten"), Lease::fixed(long(fixture))).await?;
    guard.extend(short(fixture)).await?;
    assert!(guard.remaining() <= short(fixture));
    assert_eq!(lost(&guard, short(fixture) + ROOM).await, LossReason::Expired);
    hold_soon(fixture, &*others, guard.key(), ROOM).await?;
    Ok(())
}

/// Lost is final: extending says so and does not make the lock again.
pub(super) async fn extending_a_lost_lock_does_not_revive_it(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let guard = take(&locks, &key("revive"), Lease::fixed(short(fixture))).await?;
    assert_eq!(lost(&guard, short(fixture) + ROOM).await, LossReason::Expired);
    let (next, _) = hold_soon(fixture, &*others, guard.key(), short(fixture) + ROOM).await?;
    assert_eq!(others.release(&next).await?, Release::Released);
    assert_lost(guard.extend(long(fixture)).await);
    assert!(!guard.is_held());
    assert_free(fixture, &*others, guard.key()).await
}

pub(super) async fn a_ttl_out_of_range_changes_nothing(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let lock = locks.lock(key("out"))?;
    let below = fixture.guarantees().min_ttl.saturating_sub(Duration::from_nanos(1));
    for ttl in [Duration::ZERO, below, Duration::MAX] {
        for lease in [Lease::fixed(ttl), Lease::renewed(ttl)] {
            let lock = lock.clone().lease(lease);
            for error in [
                lock.acquire().await.expect_err("out of range"),
                lock.try_acquire().await.expect_err("out of range"),
                lock.acquire_within(ROOM).await.expect_err("out of range"),
            ] {
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{ttl:?}: {error}");
            }
        }
    }
    assert_free(fixture, &*others, lock.key()).await?;
    let guard = lock.lease(Lease::renewed(long(fixture))).acquire().await?;
    for ttl in [Duration::ZERO, below, Duration::MAX] {
        let error = guard.extend(ttl).await.expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{ttl:?}: {error}");
    }
    assert!(guard.is_held());
    assert_held(fixture, &*others, guard.key()).await?;
    assert_eq!(guard.release().await?, Release::Released);
    Ok(())
}

/// A zombie gives back what it no longer has: the new holder keeps it.
pub(super) async fn an_old_guard_leaves_the_new_holder_alone(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let old = take(&locks, &key("zombie"), Lease::fixed(short(fixture))).await?;
    let (next, _) = hold_soon(fixture, &*others, old.key(), short(fixture) + ROOM).await?;
    assert_eq!(old.release().await?, Release::NotHeld);
    assert_held(fixture, &*others, &next.claim.key).await?;
    // The same by a mere drop.
    assert_eq!(others.release(&next).await?, Release::Released);
    let old = take(&locks, &next.claim.key, Lease::fixed(short(fixture))).await?;
    let (next, _) = hold_soon(fixture, &*others, old.key(), short(fixture) + ROOM).await?;
    drop(old);
    locks.shutdown().await?;
    assert_held(fixture, &*others, &next.claim.key).await?;
    assert_eq!(others.release(&next).await?, Release::Released);
    Ok(())
}

/// Unchecked: the driver sends the release of a zombie, and the store frees whoever holds.
pub(super) async fn an_old_guard_frees_the_new_holder(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let old = take(&locks, &key("blind"), Lease::fixed(short(fixture))).await?;
    let (next, _) = hold_soon(fixture, &*others, old.key(), short(fixture) + ROOM).await?;
    assert_held(fixture, &*others, &next.claim.key).await?;
    let _whatever_it_believes = old.release().await?;
    assert_free(fixture, &*others, &next.claim.key).await
}

pub(super) async fn force_is_a_loss(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let guard = take(&locks, &key("forced"), Lease::renewed(steady(fixture))).await?;
    assert_eq!(others.force_release(guard.key()).await?, Release::Released);
    assert_eq!(lost(&guard, steady(fixture) + ROOM).await, LossReason::NotHeld);
    assert!(!guard.is_held());
    assert_free(fixture, &*others, guard.key()).await
}

/// The keeper renews in batches; one lock that was taken away costs the others nothing.
pub(super) async fn one_loss_does_not_end_the_others(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let ttl = steady(fixture);
    let mut guards = Vec::new();
    for _ in 0..8 {
        guards.push(take(&locks, &key("batch"), Lease::renewed(ttl)).await?);
    }
    let taken = guards.remove(3);
    assert_eq!(others.force_release(taken.key()).await?, Release::Released);
    assert_eq!(lost(&taken, ttl + ROOM).await, LossReason::NotHeld);
    tokio::time::sleep(ttl * 2).await;
    for guard in guards {
        assert!(guard.is_held());
        assert_eq!(guard.release().await?, Release::Released);
    }
    Ok(())
}

pub(super) async fn a_maximum_hold_ends_the_lock(fixture: &dyn Fixture) -> Result<()> {
    let others = fixture.connect().await;
    let options = Options::new().with_max_hold(Duration::from_millis(300)).with_lease(Lease::renewed(long(fixture)));
    let locks = Locks::with_options(fixture.connect().await, options);
    let guard = locks.lock(key("max"))?.acquire().await?;
    assert_eq!(lost(&guard, ROOM).await, LossReason::MaxHold);
    // Long before its ttl, so it was given back, although the guard lives on.
    hold_soon(fixture, &*others, guard.key(), ROOM).await?;
    Ok(())
}

pub(super) async fn run_gives_back(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let lock = locks.lock(key("run"))?;
    let value = lock.run(async |guard| (guard.is_held(), assert_held(fixture, &*others, guard.key()).await)).await?;
    assert!(value.0);
    value.1?;
    assert_free(fixture, &*others, lock.key()).await?;
    let brief = lock.lease(Lease::fixed(short(fixture)));
    let endless = brief.run(async |_| std::future::pending::<()>().await);
    assert_lost(tokio::time::timeout(short(fixture) + ROOM, endless).await.expect("the work is cancelled"));
    Ok(())
}

pub(super) async fn a_guard_carries_the_token(fixture: &dyn Fixture) -> Result<()> {
    let locks = [locks(fixture).await, locks(fixture).await];
    let key = key("token");
    let mut last = None;
    for round in 0..10 {
        let guard = locks[round % 2].lock(&key)?.acquire_within(ROOM).await?;
        assert!(guard.fencing_token() > last, "{:?} after {last:?}", guard.fencing_token());
        last = guard.fencing_token();
        assert_eq!(guard.release().await?, Release::Released);
    }
    Ok(())
}

/// The label is for whoever looks, where the store has room for it.
pub(super) async fn a_label_can_be_seen(fixture: &dyn Fixture) -> Result<()> {
    let others = fixture.connect().await;
    let locks = Locks::with_options(fixture.connect().await, Options::new().with_label("host 7, pid 42"));
    let guard = locks.lock(key("label"))?.acquire().await?;
    let seen = others.inspect(guard.key()).await?;
    assert!(seen.held && seen.label.is_none_or(|label| label == "host 7, pid 42"));
    assert_eq!(guard.release().await?, Release::Released);
    Ok(())
}
