//! Replies that are lost, held or late.

use std::sync::Arc;

use lock_core::{ErrorKind, Lease, Locks, LossReason, Moment, Options, Owner, Release};

use crate::ground::{Ground, ROOM, Requests, claim, fixed, key_of, millis, renewed, soon, take, until};

#[tokio::test]
async fn an_acquire_whose_reply_was_lost_counts_once() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let lost = ground.proxy.when(Requests::of(&*backend).acquire).lose_reply();
        // A minute: it is found, and not merely granted anew when it has expired.
        let guard = soon(renewed(&backend, millis(60_000)).lock("a").unwrap().acquire()).await.unwrap();
        assert_eq!(lost.times_seen(), 1);
        if backend.name() == "redis-reentrant" {
            assert_eq!(ground.holds("a"), [1]);
        }
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        // The driver owes the claim an `abandon` after the release, because a copy of the first request could still land.
        until("the lock is free", || !ground.exists(&key_of(&*backend, "a"))).await;
    }
}

#[tokio::test]
async fn a_failed_acquire_leaves_no_hold() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let claim = claim("a", millis(60_000));
        for _ in 0..3 {
            let lost = ground.proxy.when(Requests::of(&*backend).acquire).lose_reply();
            let error = backend.try_acquire(&claim).await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, lock_core::Effect::Unknown));
            assert_eq!(lost.times_seen(), 1);
        }
        until("the connection is back", || ground.exists(&key_of(&*backend, "a"))).await;
        backend.abandon(&claim).await.unwrap();
        assert!(!ground.exists(&key_of(&*backend, "a")));
    }
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_ends_one_hold() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let locks = renewed(&backend, millis(5_000));
        let guard = soon(locks.lock("a").unwrap().acquire()).await.unwrap();
        let lost = ground.proxy.when(Requests::of(&*backend).release).lose_reply();
        let released = soon(guard.release()).await;
        assert_eq!(lost.times_seen(), 1);
        // Either the repeat was waited for, or the caller is told that it is not known; never that the lock was lost.
        match released {
            Ok(release) => assert_eq!(release, Release::Released),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable),
        }
        assert!(!ground.exists(&key_of(&*backend, "a")));
    }
}

#[tokio::test]
async fn a_repeated_release_of_one_hold_leaves_the_other() {
    let ground = Ground::new();
    let backend = ground.reentrant(ROOM).await;
    let locks = renewed(&backend, millis(30_000));
    let owner = Owner::random();
    let lock = locks.lock("a").unwrap().owner(&owner);
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    assert_eq!(ground.holds("a"), [2]);
    let release = Requests::of(&*backend).release;
    let lost = ground.proxy.when(release.clone()).lose_reply();
    let _either = soon(inner.release()).await;
    assert_eq!(lost.times_seen(), 1);
    // However often the release is sent again, by `release` or by the keeper, it ends its own hold only.
    let sent = || ground.proxy.recent().iter().filter(|request| release.matches(request)).count();
    until("it is sent again", || sent() >= 2).await;
    tokio::time::sleep(millis(100)).await;
    assert_eq!(ground.holds("a"), [1]);
    assert!(outer.is_held());
    assert_eq!(outer.release().await.unwrap(), Release::Released);
    assert_eq!(ground.holds("a"), [0; 0]);
}

#[tokio::test]
async fn an_old_release_that_lands_late_leaves_the_next_hold_of_the_same_owner() {
    let ground = Ground::new();
    let backend = ground.reentrant(ROOM).await;
    let first = claim("a", millis(60_000));
    let grant = backend.try_acquire(&first).await.unwrap().unwrap();
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    let second = lock_core::Claim::new(first.key.clone(), first.owner, first.lease);
    backend.try_acquire(&second).await.unwrap().unwrap();
    assert_eq!(backend.release(&grant).await.unwrap(), Release::NotHeld);
    assert_eq!(ground.holds("a"), [1]);
}

#[tokio::test]
async fn a_release_that_fails_stops_the_renewal_and_the_key_goes_in_its_ttl() {
    let ground = Ground::new();
    for backend in ground.both(millis(200)).await {
        let ttl = millis(900);
        let locks = renewed(&backend, ttl);
        let guard = soon(locks.lock("a").unwrap().acquire()).await.unwrap();
        let requests = Requests::of(&*backend);
        let renewals = ground.proxy.when(requests.renew).every_time().cut();
        let releases = ground.proxy.when(requests.release).every_time().cut();
        soon(guard.release()).await.unwrap_err();
        let released_at = Moment::now();
        releases.seen().await;
        until("the key is gone", || !ground.exists(&key_of(&*backend, "a"))).await;
        // Room for a slow machine; a renewal that went on would keep it for ever.
        assert!(Moment::now().saturating_duration_since(released_at) < ttl * 4);
        assert_eq!(renewals.times_seen(), 0);
    }
}

#[tokio::test]
async fn a_renewal_whose_reply_is_held_leaves_the_old_deadline() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let held = ground.proxy.when(Requests::of(&*backend).renew).every_time().hold_reply();
        let guard = soon(renewed(&backend, millis(900)).lock("a").unwrap().acquire()).await.unwrap();
        let deadline = guard.deadline();
        soon(held.seen()).await;
        assert_eq!(guard.deadline(), deadline);
        assert_eq!(soon(guard.lost()).await, LossReason::Expired);
        assert_eq!(guard.deadline(), deadline);
        assert!(Moment::now() >= deadline);
        held.release();
        // Lost is final, also when the answer comes after all.
        assert!(!guard.is_held());
    }
}

#[tokio::test]
async fn the_deadline_of_a_late_grant_counts_from_its_send() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let ttl = millis(3_000);
        let held = ground.proxy.when(Requests::of(&*backend).acquire).hold_reply();
        let locks = fixed(&backend, ttl);
        let before = Moment::now();
        let acquiring = tokio::spawn(async move { locks.lock("a").unwrap().acquire().await });
        soon(held.seen()).await;
        let applied = Moment::now();
        tokio::time::sleep(ttl.mul_f64(0.9).saturating_sub(applied.saturating_duration_since(before))).await;
        held.release();
        let guard = soon(acquiring).await.unwrap().unwrap();
        assert!(guard.deadline() <= applied.saturating_add(ttl));
        assert!(guard.remaining() < ttl / 2, "{:?}", guard.remaining());
        drop(guard);
    }
}

#[tokio::test]
async fn a_request_that_lands_late_is_gone_within_its_ttl_and_is_no_second_holder() {
    let ground = Ground::new();
    for backend in ground.both(millis(1_000)).await {
        let ttl = millis(3_000);
        let late = ground.proxy.when(Requests::of(&*backend).acquire).hold_request();
        let options = Options::new().with_lease(Lease::fixed(ttl)).with_unavailable_after(millis(100));
        let locks = Locks::with_options(Arc::clone(&backend), options);
        // Its caller has given up, or has been granted by a later request of the same claim.
        let outcome = soon(locks.lock("a").unwrap().acquire()).await;
        soon(late.seen()).await;
        if let Ok(guard) = outcome {
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        let key = key_of(&*backend, "a");
        until("the claim has been undone", || !ground.exists(&key)).await;

        // It lands on a lock that another holds: nothing comes of it.
        let other = take(&*backend, "a", millis(60_000)).await;
        let before = backend.inspect(&other.claim.key).await.unwrap().holder;
        late.release();
        until("the late request has come", || ground.proxy.connections() > 1).await;
        tokio::time::sleep(millis(100)).await;
        assert_eq!(backend.inspect(&other.claim.key).await.unwrap().holder, before);
        assert_eq!(backend.release(&other).await.unwrap(), Release::Released);
        drop(locks);
        until("everything is gone", || !ground.exists(&key)).await;
    }
}

#[tokio::test]
async fn a_request_that_lands_late_on_a_free_lock_is_undone_or_ends_with_its_ttl() {
    let ground = Ground::new();
    for backend in ground.both(millis(1_000)).await {
        let ttl = millis(3_000);
        let late = ground.proxy.when(Requests::of(&*backend).acquire).every_time().hold_request();
        let options = Options::new().with_lease(Lease::fixed(ttl)).with_unavailable_after(millis(100));
        let locks = Locks::with_options(Arc::clone(&backend), options);
        let error = soon(locks.lock("b").unwrap().acquire()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        late.release();
        let landed_by = Moment::now();
        let next = soon(renewed(&backend, ttl).lock("b").unwrap().acquire()).await.unwrap();
        assert!(Moment::now().saturating_duration_since(landed_by) < ttl * 4);
        assert!(next.is_held());
    }
}
