//! Each public future is polled to its n-th await and dropped there, for every n: afterwards the store holds nothing, nobody
//! waits, and the keeper holds nothing.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::store::{Step, Store};
use super::{TTL, locks, ms, pass, settle};
use crate::{Locks, Owner};

/// Polls `future` until it has been pending `awaits` times, and drops it. True if it ended before.
async fn drop_at<F: Future>(future: F, awaits: usize) -> bool {
    let mut future = pin!(future);
    for _ in 0..awaits {
        let polled = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await;
        if polled {
            return true;
        }
        // Others go on between two polls, the keeper among them, and time passes where all wait for it.
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    false
}

async fn assert_nothing_is_left(store: &Store, locks: &Locks, what: &str, awaits: usize) {
    settle().await;
    pass(ms(200)).await;
    assert!(store.is_empty(), "{what}, dropped at await {awaits}: the store is left with {store:?}");
    // Abandons of requests that may still land go on until the ttl is over.
    pass(TTL * 2).await;
    assert!(locks.handle.driver.is_idle(), "{what}, dropped at await {awaits}: the keeper is left with {locks:?}");
}

/// Runs `scene` with every n until its future ends before its n-th await.
async fn at_every_await(what: &str, mut scene: impl AsyncFnMut(&Store, &Locks, usize) -> bool) {
    for awaits in 0..200 {
        let store = Store::new().with_yields(3);
        let locks = locks(&store);
        let ended = scene(&store, &locks, awaits).await;
        assert_nothing_is_left(&store, &locks, what, awaits).await;
        if ended {
            assert!(awaits > 3, "{what} has only {awaits} awaits: the scene shows nothing");
            return;
        }
    }
    panic!("{what} never ends");
}

#[tokio::test(start_paused = true)]
async fn acquire() {
    at_every_await("acquire", async |_, locks, awaits| {
        let lock = locks.lock("k").unwrap();
        drop_at(lock.acquire(), awaits).await
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn acquire_by_an_explicit_owner() {
    at_every_await("acquire by an owner", async |_, locks, awaits| {
        let lock = locks.lock("k").unwrap().owner(&Owner::random());
        drop_at(lock.acquire(), awaits).await
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn acquire_while_another_holds() {
    at_every_await("acquire while another holds", async |store, locks, awaits| {
        store.seize("k", ms(20));
        let lock = locks.lock("k").unwrap();
        let ended = drop_at(lock.acquire(), awaits).await;
        store.clear("k");
        ended
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn acquire_behind_another_task() {
    at_every_await("acquire behind another task", async |_, locks, awaits| {
        let lock = locks.lock("k").unwrap();
        let holder = tokio::spawn({
            let lock = lock.clone();
            async move {
                let guard = lock.acquire().await.unwrap();
                pass(ms(10)).await;
                drop(guard);
            }
        });
        settle().await;
        let ended = drop_at(lock.acquire(), awaits).await;
        holder.await.unwrap();
        // Whoever comes next gets it.
        drop(tokio::time::timeout(TTL, lock.acquire()).await.expect("the queue moves on").unwrap());
        ended
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn acquire_with_lost_replies() {
    at_every_await("acquire with lost replies", async |store, locks, awaits| {
        store.script("acquire", [Step::ReplyLost(ms(1)), Step::RequestLost(ms(1)), Step::Refused]);
        let lock = locks.lock("k").unwrap();
        drop_at(lock.acquire(), awaits * 5).await
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn acquire_within() {
    at_every_await("acquire_within", async |store, locks, awaits| {
        store.seize("k", ms(10));
        let lock = locks.lock("k").unwrap();
        let ended = drop_at(lock.acquire_within(ms(15)), awaits).await;
        store.clear("k");
        ended
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn try_acquire() {
    at_every_await("try_acquire", async |_, locks, awaits| {
        let lock = locks.lock("k").unwrap();
        drop_at(lock.try_acquire(), awaits).await
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn release() {
    at_every_await("release", async |_, locks, awaits| {
        let guard = locks.lock("k").unwrap().acquire().await.unwrap();
        drop_at(guard.release(), awaits).await
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn release_with_lost_replies() {
    at_every_await("release with lost replies", async |store, locks, awaits| {
        store.script("release", [Step::RequestLost(ms(1)), Step::ReplyLost(ms(1))]);
        let guard = locks.lock("k").unwrap().acquire().await.unwrap();
        drop_at(guard.release(), awaits * 5).await
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn extend() {
    at_every_await("extend", async |store, locks, awaits| {
        store.script("renew", [Step::Slow(ms(2), ms(2))]);
        let guard = locks.lock("k").unwrap().acquire().await.unwrap();
        drop_at(guard.extend(TTL * 2), awaits).await
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn run() {
    at_every_await("run", async |_, locks, awaits| {
        let lock = locks.lock("k").unwrap();
        drop_at(lock.run(async |_| pass(ms(2)).await), awaits).await
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn shutdown() {
    at_every_await("shutdown", async |store, locks, awaits| {
        store.script("release", [Step::Slow(ms(2), ms(2))]);
        drop(locks.lock("k").unwrap().acquire().await.unwrap());
        drop_at(locks.shutdown(), awaits).await
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lost() {
    let store = Store::new();
    let locks = locks(&store);
    let guard = locks.lock("k").unwrap().acquire().await.unwrap();
    for awaits in 0..20 {
        assert!(!drop_at(guard.lost(), awaits).await);
    }
    assert!(guard.is_held());
    drop(guard);
    assert_nothing_is_left(&store, &locks, "lost", 20).await;
}
