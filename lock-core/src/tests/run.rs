use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;

use super::store::{Step, Store};
use super::{TTL, locks, ms, pass, settle};
use crate::{ErrorKind, Lease};

#[tokio::test(start_paused = true)]
async fn it_returns_the_value_and_gives_back() {
    let store = Store::new();
    let lock = locks(&store).lock("k").unwrap();
    let name = String::from("borrowed");
    let value = lock.run(async |guard| (guard.is_held(), name.len())).await.unwrap();
    assert_eq!(value, (true, 8));
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn its_work_is_cancelled_when_the_lock_is_lost() {
    let store = Store::new();
    let lock = locks(&store).lock("k").unwrap();
    let reached = AtomicBool::new(false);
    store.always("renew", Step::RequestLost(ms(60_000)));
    let work = async |_: &crate::LockGuard| {
        pass(TTL * 100).await;
        reached.store(true, Ordering::Relaxed);
    };
    assert_eq!(lock.run(work).await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(!reached.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_finished_on_a_lost_lock_is_lost() {
    let store = Store::new();
    let lock = locks(&store).lock("k").unwrap().lease(Lease::fixed(TTL));
    // The body does not await, so nothing could cancel it. The store still has the entry, for the drift.
    let body = async |guard: &crate::LockGuard| {
        tokio::task::yield_now().await;
        while guard.is_held() {
            tokio::time::advance(ms(1)).now_or_never();
        }
    };
    assert_eq!(lock.run(body).await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(store.holds("k"));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_finds_the_lock_not_held_is_lost() {
    let store = Store::new();
    let error = locks(&store).lock("k").unwrap().run(async |_| store.clear("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("`k`"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_otherwise_returns_the_value_and_the_keeper_goes_on() {
    let store = Store::new();
    store.script("release", [Step::Rejected]);
    let locks = locks(&store);
    assert_eq!(locks.lock("k").unwrap().run(async |_| 7).await.unwrap(), 7);
    settle().await;
    assert!(!store.holds("k"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_gives_back_and_goes_on() {
    let store = Store::new();
    let lock = Arc::new(locks(&store).lock("k").unwrap());
    let task = tokio::spawn(async move { lock.run(async |_| panic!("the body")).await });
    assert!(task.await.unwrap_err().is_panic());
    settle().await;
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn it_can_be_spawned() {
    let store = Store::new();
    let lock = locks(&store).lock("k").unwrap();
    let value = tokio::spawn(async move {
        lock.run(async |guard| {
            pass(ms(10)).await;
            guard.is_held()
        })
        .await
    });
    assert!(value.await.unwrap().unwrap());
}
