//! A connection outlives the runtime that it was built on.

use std::sync::Arc;

use lock_core::{Release, Stop};

use crate::ground::{Ground, ROOM, claim, millis, soon, take, until};
use crate::waiting::{listeners, median_hand_over};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn waiters_are_still_woken_by_push_after_the_runtime_that_built_the_connection_has_ended() {
    let ground = Ground::new();
    let (first, second) = (runtime(), runtime());
    let backend = first.block_on(ground.token(ROOM));
    // The first runtime also owns the subscriptions.
    first.block_on(median_hand_over(&ground, Arc::clone(&backend)));
    drop(first);
    let hand_over = second.block_on(median_hand_over(&ground, backend));
    assert!(hand_over < millis(300), "{hand_over:?}");
}

#[test]
fn a_waiter_that_waits_while_that_runtime_ends_is_subscribed_anew() {
    let ground = Ground::new();
    let (first, second) = (runtime(), runtime());
    let backend = first.block_on(ground.token(ROOM));
    let holder = second.block_on(ground.direct());
    let grant = second.block_on(take(&*holder, "a", millis(60_000)));
    second.block_on(take(&*holder, "b", millis(60_000)));
    let wait = |name: &'static str| {
        let backend = Arc::clone(&backend);
        async move {
            loop {
                // A try that was under way when the runtime ended fails; the driver, too, would wait again.
                if let Ok(outcome) = backend.acquire(&claim(name, millis(5_000)), &Stop::new()).await {
                    break outcome;
                }
            }
        }
    };
    // The first to wait starts the task that owns the subscriptions, so that ends, too.
    first.spawn(wait("b"));
    second.block_on(until("the first listens", || listeners(&ground, "b") == 1));
    let waiter = second.spawn(wait("a"));
    second.block_on(until("the second listens", || listeners(&ground, "a") == 1));

    drop(first);
    second.block_on(async {
        until("the old connection is gone", || listeners(&ground, "b") == 0).await;
        until("it listens on another one", || listeners(&ground, "a") == 1).await;
        assert_eq!(holder.release(&grant).await.unwrap(), Release::Released);
        assert!(soon(waiter).await.unwrap().is_some());
    });
}

#[test]
fn requests_go_on_after_the_runtime_that_built_the_connection_has_ended() {
    let ground = Ground::new();
    let first = runtime();
    let backend = first.block_on(ground.reentrant(ROOM));
    let claim = claim("a", millis(60_000));
    let grant = first.block_on(backend.try_acquire(&claim)).unwrap().unwrap();
    drop(first);
    runtime().block_on(async {
        assert!(backend.inspect(&claim.key).await.unwrap().held);
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    });
}
