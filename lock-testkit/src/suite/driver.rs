//! What `Locks` promises about waiting, giving up and giving back, on the real store.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{ErrorKind, Lease, LockGuard, Locks, Options, Owner, Release, Result};
use tokio::task::JoinSet;

use super::Fixture;
use super::contend::Counter;
use super::ground::{
    ROOM, assert_free, assert_held, claim, eventually, hold, hold_soon, key, long, short, steady, take,
};
use super::lease::locks;

const CONTENDERS: usize = 8;
const ROUNDS: u64 = 6;

/// Two tasks of each of four programs, each task with its own lock object.
pub(super) async fn no_update_is_lost(fixture: &dyn Fixture) -> Result<()> {
    let key = key("counter");
    let counter = Arc::new(Counter::default());
    let mut programs = Vec::new();
    for _ in 0..CONTENDERS / 2 {
        programs.push(locks(fixture).await);
    }
    let mut contenders = JoinSet::new();
    for contender in 0..CONTENDERS {
        let (lock, counter) = (programs[contender / 2].lock(&key)?, Arc::clone(&counter));
        contenders.spawn(async move {
            for _ in 0..ROUNDS {
                let guard = lock.acquire().await?;
                counter.add_one().await;
                assert_eq!(guard.release().await?, Release::Released);
            }
            Ok(())
        });
    }
    while let Some(ended) = contenders.join_next().await {
        ended.expect("a contender does not panic")?;
    }
    assert_eq!(counter.value(), ROUNDS * CONTENDERS as u64);
    Ok(())
}

pub(super) async fn a_try_does_not_wait(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (locks(fixture).await, locks(fixture).await);
    let key = key("try");
    let guard = ours.lock(&key)?.try_acquire().await?.expect("a free lock is granted");
    for locks in [&ours, &theirs] {
        assert!(locks.lock(&key)?.try_acquire().await?.is_none());
    }
    assert_eq!(guard.release().await?, Release::Released);
    let guard = theirs.lock(&key)?.try_acquire().await?.expect("a free lock is granted");
    assert_eq!(guard.release().await?, Release::Released);
    Ok(())
}

/// Contention, and not a failure; and afterwards nothing of the wait is left.
pub(super) async fn a_limit_ends_the_wait(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let held = hold(fixture, &*others, &key("limit")).await?;
    let lock = locks.lock(&held.claim.key)?;
    let error = lock.acquire_within(Duration::from_millis(500)).await.expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!(others.release(&held).await?, Release::Released);
    hold_soon(fixture, &*others, lock.key(), ROOM).await?;
    Ok(())
}

/// The store answers, so patience with an outage has nothing to do with how long another may hold the lock.
pub(super) async fn contention_is_not_an_outage(fixture: &dyn Fixture) -> Result<()> {
    let others = fixture.connect().await;
    let options = Options::new().with_unavailable_after(Duration::from_millis(100));
    let locks = Locks::with_options(fixture.connect().await, options);
    let held = hold(fixture, &*others, &key("busy")).await?;
    let wait = tokio::spawn({
        let lock = locks.lock(&held.claim.key)?;
        async move { lock.acquire().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!wait.is_finished(), "a wait for a held lock has ended");
    assert_eq!(others.release(&held).await?, Release::Released);
    let guard = tokio::time::timeout(ROOM, wait).await.expect("the wait ends soon").expect("no panic")?;
    assert_eq!(guard.release().await?, Release::Released);
    Ok(())
}

/// Dropped at shifting moments: before its first poll, on its way, while it waits for a turn.
pub(super) async fn a_dropped_wait_leaves_nothing(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let lock = locks.lock(key("drop"))?.lease(Lease::renewed(long(fixture)));
    for polls in 0..40 {
        drop_after(polls, lock.acquire()).await;
        drop_after(polls, lock.try_acquire()).await;
    }
    // A leftover would live for longer than this.
    let (held, _) = hold_soon(fixture, &*others, lock.key(), ROOM).await?;
    for polls in 0..40 {
        drop_after(polls, lock.acquire()).await;
        drop_after(polls, lock.acquire_within(ROOM)).await;
    }
    eventually("no dropped wait keeps a place", async || {
        others.inspect(lock.key()).await.is_ok_and(|seen| seen.waiters.is_none_or(|waiters| waiters == 0))
    })
    .await;
    assert_eq!(others.release(&held).await?, Release::Released);
    hold_soon(fixture, &*others, lock.key(), ROOM).await?;
    Ok(())
}

/// Runs `future` until this task has yielded so many times, and drops it there.
async fn drop_after<T>(yields: usize, future: impl Future<Output = T>) {
    let yielding = async {
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        _ended = future => {}
        () = yielding => {}
    }
}

pub(super) async fn a_dropped_guard_frees(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let guard = locks.lock(key("guard"))?.lease(Lease::renewed(long(fixture))).acquire().await?;
    let key = guard.key().clone();
    drop(guard);
    hold_soon(fixture, &*others, &key, ROOM).await?;
    Ok(())
}

pub(super) async fn shutdown_gives_everything_back(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let mut guards = Vec::new();
    for _ in 0..4 {
        guards.push(locks.lock(key("shutdown"))?.lease(Lease::renewed(long(fixture))).acquire().await?);
    }
    let dropped = guards.pop().map(|guard| guard.key().clone()).expect("four were taken");
    tokio::time::timeout(ROOM, locks.shutdown()).await.expect("shutdown ends in bounded time")?;
    for key in guards.iter().map(LockGuard::key).chain([&dropped]) {
        assert_free(fixture, &*others, key).await?;
    }
    assert!(guards.iter().all(|guard| !guard.is_held()));
    Ok(())
}

/// Re-entrant: each guard is one hold, and the lock is free when the last is given back.
pub(super) async fn an_owner_re_enters(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let lock = locks.lock(key("owner"))?.owner(&Owner::random());
    let outer = lock.acquire().await?;
    let inner = lock.try_acquire().await?.expect("its owner may enter again");
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    assert_eq!(outer.release().await?, Release::Released);
    assert!(inner.is_held());
    assert_held(fixture, &*others, lock.key()).await?;
    assert_eq!(inner.release().await?, Release::Released);
    assert_free(fixture, &*others, lock.key()).await
}

pub(super) async fn an_owner_is_unsupported(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let lock = locks.lock(key("unsupported"))?.owner(&Owner::random());
    for error in [
        lock.acquire().await.expect_err("not re-entrant"),
        lock.try_acquire().await.expect_err("not re-entrant"),
        lock.acquire_within(ROOM).await.expect_err("not re-entrant"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    assert_free(fixture, &*others, lock.key()).await
}

/// The holder's program vanishes: its claim is never renewed, and nobody is told.
pub(super) async fn a_vanished_holder_does_not_block(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let held = take(&*others, &claim(fixture, &key("gone"), short(fixture))).await?;
    let guard = locks.lock(&held.claim.key)?.acquire_within(held.ttl + ROOM).await?;
    assert!(guard.is_held());
    assert_eq!(guard.release().await?, Release::Released);
    Ok(())
}

/// A released lock is never renewed again: after silence for a ttl and more, others have it undisturbed.
pub(super) async fn no_renewal_follows_a_release(fixture: &dyn Fixture) -> Result<()> {
    let (locks, others) = (locks(fixture).await, fixture.connect().await);
    let lock = locks.lock(key("silence"))?.lease(Lease::renewed(steady(fixture)));
    for _ in 0..50 {
        assert_eq!(lock.acquire().await?.release().await?, Release::Released);
    }
    let held = take(&*others, &claim(fixture, lock.key(), steady(fixture))).await?;
    // A renewal that goes on, checked or not, would keep this lock or take it.
    tokio::time::sleep(held.ttl).await;
    eventually("the lease of the last holder ends", async || {
        others.inspect(lock.key()).await.is_ok_and(|seen| !seen.held)
    })
    .await;
    assert_free(fixture, &*others, lock.key()).await
}
