//! Read back from the server: a lock's ttl is never more than was asked, and never nothing.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{ErrorKind, Lease, LossReason, Release, Renew};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::ground::{Ground, ROOM, claim, fixed, key_of, millis, renewed, soon, take, until};

/// Ttls from the minimum to the maximum, each order of magnitude as likely as the next.
fn ttls() -> impl Strategy<Value = Duration> {
    let nanos = |from: u64, to: u64| (from..=to).prop_map(Duration::from_nanos);
    let max = u64::try_from(Lease::MAX_TTL.as_nanos()).unwrap();
    prop_oneof![
        nanos(100_000_000, 1_000_000_000),
        nanos(1_000_000_000, 60_000_000_000),
        nanos(60_000_000_000, 86_400_000_000_000),
        nanos(86_400_000_000_000, max),
        Just(Lease::MAX_TTL),
    ]
}

#[test]
fn the_servers_ttl_is_above_zero_and_at_most_what_was_asked() {
    let ground = Ground::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for backend in runtime.block_on(ground.both(ROOM)) {
        let cases = Cell::new(0);
        TestRunner::new(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })
            .run(&(ttls(), ttls()), |(first, second)| {
                cases.set(cases.get() + 1);
                let name = format!("p{}", cases.get());
                let key = key_of(&*backend, &name);
                runtime.block_on(async {
                    let mut grant = take(&*backend, &name, first).await;
                    let read = ground.pttl(&key);
                    prop_assert!(within(read, grant.ttl) || over(read, grant.ttl), "{read} of {:?}", grant.ttl);
                    prop_assert!(grant.ttl >= first && grant.ttl < first + millis(1));
                    let renewal = backend.renew(&[Renew::new(&grant, second)]).await.remove(0);
                    let Ok(renewal) = renewal else {
                        prop_assert!(first < SHORT);
                        return Ok(());
                    };
                    grant.ttl = grant.ttl.max(renewal.ttl);
                    let read = ground.pttl(&key);
                    prop_assert!(within(read, grant.ttl) || over(read, grant.ttl), "{read} of {:?}", grant.ttl);
                    // Never shortened.
                    prop_assert!(
                        grant.ttl < Duration::from_secs(20)
                            || read > i64::try_from(grant.ttl.as_millis()).unwrap() - 10_000
                    );
                    let _either = backend.release(&grant).await.unwrap();
                    prop_assert!(!ground.exists(&key));
                    Ok(())
                })
            })
            .unwrap();
    }
}

/// A ttl of a tenth of a second may be over when it is looked at, and on a busy machine a longer one, too.
const SHORT: Duration = Duration::from_secs(10);

/// Whether the key is gone, as one of a short ttl may be.
fn over(pttl: i64, ttl: Duration) -> bool {
    pttl == -2 && ttl < SHORT
}

fn within(pttl: i64, ttl: Duration) -> bool {
    pttl > 0 && u128::try_from(pttl).unwrap() <= ttl.as_millis()
}

#[tokio::test]
async fn extending_a_hundred_times_never_exceeds_the_ttl() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let guard = fixed(&backend, millis(20_000)).lock("a").unwrap().acquire().await.unwrap();
        for _ in 0..100 {
            guard.extend(millis(20_000)).await.unwrap();
            assert!(within(ground.pttl(&key_of(&*backend, "a")), millis(20_000)));
            assert!(guard.remaining() <= millis(20_000));
        }
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn extending_a_lost_lock_never_makes_it_again() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let key = key_of(&*backend, "a");
        let locks = fixed(&backend, millis(30_000));
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        ground.server.command::<()>(&["DEL", &key]).unwrap();
        let other = take(&*backend, "a", millis(30_000)).await;
        assert_eq!(backend.release(&other).await.unwrap(), Release::Released);
        assert_eq!(guard.extend(millis(30_000)).await.unwrap_err().kind(), ErrorKind::Lost);
        assert!(!ground.exists(&key));
        assert_eq!(soon(guard.lost()).await, LossReason::NotHeld);
    }
}

#[tokio::test]
async fn an_old_guard_never_frees_the_next_holder() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let key = key_of(&*backend, "a");
        let locks = fixed(&backend, millis(150));
        let old = locks.lock("a").unwrap().acquire().await.unwrap();
        until("it has expired", || !ground.exists(&key)).await;
        let next = soon(fixed(&backend, millis(30_000)).lock("a").unwrap().acquire()).await.unwrap();
        assert_eq!(old.release().await.unwrap(), Release::NotHeld);
        assert!(ground.exists(&key));
        assert_eq!(next.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_that_races_a_renewal_never_promises_more_than_the_store_keeps() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let key = key_of(&*backend, "a");
        let guard = Arc::new(renewed(&backend, millis(900)).lock("a").unwrap().acquire().await.unwrap());
        for round in 0..60_u64 {
            // Around the moment at which a renewal is due, with one of two ttls.
            tokio::time::sleep(millis(round * 7 % 40)).await;
            guard.extend(millis(if round % 2 == 0 { 900 } else { 1_500 })).await.unwrap();
            // Read in this order, time that passes between the two only makes the store's look smaller.
            let stores = ground.pttl(&key);
            let guards = i64::try_from(guard.remaining().as_millis()).unwrap();
            assert!(guards <= stores, "the guard says {guards} ms, the store {stores}");
        }
        assert!(guard.is_held());
    }
}

#[tokio::test]
async fn a_late_renewal_with_a_shorter_ttl_does_not_undercut_a_newer_one() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let grant = take(&*backend, "a", millis(30_000)).await;
        backend.renew(&[Renew::new(&grant, millis(60_000))]).await.remove(0).unwrap();
        backend.renew(&[Renew::new(&grant, millis(30_000))]).await.remove(0).unwrap();
        assert!(ground.pttl(&key_of(&*backend, "a")) > 45_000);
    }
}

#[tokio::test]
async fn a_ttl_out_of_range_is_refused_and_leaves_nothing() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        for ttl in [Duration::ZERO, Duration::from_nanos(99_999_999), Lease::MAX_TTL + millis(1), Duration::MAX] {
            let asked = ground.proxy.count("EVALSHA");
            let error = backend.try_acquire(&claim("a", ttl)).await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, lock_core::Effect::None));
            let error = fixed(&backend, ttl).lock("a").unwrap().acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert_eq!(ground.proxy.count("EVALSHA"), asked);
        }
        assert_eq!(ground.server.command::<u64>(&["DBSIZE"]).unwrap(), 0);
        let grant = take(&*backend, "b", millis(30_000)).await;
        let error = backend.renew(&[Renew::new(&grant, Duration::ZERO)]).await.remove(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(ground.pttl(&key_of(&*backend, "b")) > 0);
        ground.server.command::<()>(&["FLUSHALL"]).unwrap();
    }
}
