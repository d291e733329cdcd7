use super::store::{Step, Store};
use super::{TTL, locks, ms, pass, settle, since};
use crate::{ErrorKind, LossReason, Moment};

#[tokio::test(start_paused = true)]
async fn it_waits_for_pending_releases_and_closes_the_backend_last() {
    let store = Store::new();
    let locks = locks(&store);
    let guard = locks.lock("k").unwrap().acquire().await.unwrap();
    store.script("release", [Step::Slow(ms(100), ms(100))]);
    drop(guard);
    let start = Moment::now();
    locks.shutdown().await.unwrap();
    assert!(since(start) >= ms(200));
    assert_eq!(store.operations(), ["acquire", "release", "close"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_lost_with_a_reason_and_given_back() {
    let store = Store::new();
    let locks = locks(&store);
    let guard = locks.lock("k").unwrap().acquire().await.unwrap();
    locks.shutdown().await.unwrap();
    assert_eq!(guard.lost().await, LossReason::ShutDown);
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nobody_acquires_afterwards_and_waiters_are_told() {
    let store = Store::new();
    store.seize("k", TTL * 100);
    let locks = locks(&store);
    let lock = locks.lock("k").unwrap();
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.unwrap_err().kind() })
        })
        .collect();
    settle().await;
    locks.shutdown().await.unwrap();
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap(), ErrorKind::Rejected);
    }
    assert_eq!(lock.acquire().await.unwrap_err().kind(), ErrorKind::Rejected);
    assert_eq!(lock.try_acquire().await.unwrap_err().kind(), ErrorKind::Rejected);
    settle().await;
    assert_eq!(store.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn those_in_the_local_queue_are_told_at_once_although_the_store_hangs() {
    let store = Store::new();
    store.always("acquire", Step::RequestLost(TTL * 60));
    let locks = locks(&store);
    let lock = locks.lock("k").unwrap();
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.unwrap_err().kind() })
        })
        .collect();
    settle().await;
    let start = Moment::now();
    let shutdown = tokio::spawn(async move { locks.shutdown().await });
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap(), ErrorKind::Rejected);
    }
    assert_eq!(since(start), ms(0));
    shutdown.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_after_it_is_given_back() {
    let store = Store::new();
    store.script("try_acquire", [Step::Slow(ms(10), ms(10))]);
    let locks = locks(&store);
    let lock = locks.lock("k").unwrap();
    let acquiring = tokio::spawn(async move { lock.try_acquire().await.map(|guard| guard.is_some()) });
    settle().await;
    locks.shutdown().await.unwrap();
    assert_eq!(acquiring.await.unwrap().unwrap_err().kind(), ErrorKind::Rejected);
    settle().await;
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn it_does_not_wait_for_requests_that_may_still_land() {
    let store = Store::new();
    store.script("try_acquire", [Step::RequestLost(ms(0))]);
    let locks = locks(&store);
    assert!(locks.lock("k").unwrap().try_acquire().await.is_err());
    let start = Moment::now();
    locks.shutdown().await.unwrap();
    assert_eq!(since(start), ms(0));
    assert_eq!(store.calls("abandon").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn with_the_store_down_it_ends_when_the_leases_are_over() {
    let store = Store::new();
    let locks = locks(&store);
    let guard = locks.lock("k").unwrap().acquire().await.unwrap();
    store.always_all(Step::Refused);
    drop(guard);
    let start = Moment::now();
    locks.shutdown().await.unwrap();
    assert!(since(start) <= TTL + ms(10), "{:?}", since(start));
}

#[tokio::test(start_paused = true)]
async fn the_keeper_ends_when_nobody_is_left_and_nothing_is_owed() {
    let store = Store::new();
    let locks = locks(&store);
    let guard = locks.lock("k").unwrap().acquire().await.unwrap();
    let metrics = tokio::runtime::Handle::current().metrics();
    assert_eq!(metrics.num_alive_tasks(), 1);
    drop(locks);
    pass(TTL * 3).await;
    assert!(guard.is_held(), "a guard keeps the keeper alive");
    drop(guard);
    settle().await;
    assert_eq!(metrics.num_alive_tasks(), 0);
    assert!(store.is_empty());
}
