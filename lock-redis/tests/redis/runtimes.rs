//! A connection outlives the runtime that it was built on.

use std::sync::Arc;

use lock_core::{Backend, Release};

use crate::ground::{Ground, ROOM, claim, millis, renewed, soon, take, until};
use crate::waiting::median_hand_over;

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
fn a_waiter_that_waits_while_the_runtime_ends_is_woken() {
    let ground = Ground::new();
    let (first, second) = (runtime(), runtime());
    for name in ["token", "reentrant"] {
        let building = if name == "token" { &first } else { &second };
        let backend: Arc<dyn Backend> = if name == "token" {
            building.block_on(ground.token(ROOM))
        } else {
            building.block_on(ground.reentrant(ROOM))
        };
        let grant = building.block_on(take(&*backend, "a", millis(60_000)));
        let running = runtime();
        let waiter = running.spawn({
            let backend = Arc::clone(&backend);
            async move { renewed(&backend, millis(5_000)).lock("a").unwrap().acquire().await.map(drop) }
        });
        running.block_on(async {
            let subscribed = || ground.server.command::<Vec<String>>(&["PUBSUB", "CHANNELS"]).unwrap().len() == 1;
            until("it listens", subscribed).await;
        });
        if name == "token" {
            let ended = runtime();
            // Another runtime than the waiter's has owned nothing yet: this one ends the connection's.
            drop(ended);
        }
        running.block_on(async {
            assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
            soon(waiter).await.unwrap().unwrap();
        });
    }
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
