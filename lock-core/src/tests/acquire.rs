use std::sync::{Arc, Mutex};

use super::store::{Step, Store};
use super::{TTL, locks, ms, settle, since};
use crate::{ErrorKind, Lease, Moment, Owner, Release};

#[tokio::test(start_paused = true)]
async fn contention_is_not_an_error_of_a_try() {
    let (store, other) = (Store::new(), Store::new());
    store.seize("k", TTL * 100);
    assert!(locks(&store).lock("k").unwrap().try_acquire().await.unwrap().is_none());
    assert!(locks(&other).lock("k").unwrap().try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_the_callers_limit_with_timed_out_and_leaves_nothing() {
    let store = Store::new();
    store.seize("k", TTL * 100);
    let start = Moment::now();
    let error = locks(&store).lock("k").unwrap().acquire_within(ms(2_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("`k`") && error.to_string().contains("2s"), "{error}");
    assert!(since(start) >= ms(2_000) && since(start) <= ms(2_002));
    settle().await;
    assert_eq!(store.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_limit_beyond_the_clock_is_none() {
    let store = Store::new();
    store.seize("k", TTL);
    let guard = locks(&store).lock("k").unwrap().acquire_within(std::time::Duration::MAX).await.unwrap();
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_process_queue_in_memory_and_only_the_head_contends() {
    let store = Store::new();
    let lock = locks(&store).lock("k").unwrap();
    let first = lock.acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for index in 0..10 {
        let (lock, order) = (lock.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            order.lock().unwrap().push(index);
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }));
        settle().await;
    }
    assert_eq!(store.waiting(), 0, "nobody asks the store while this process holds the lock");
    assert_eq!(first.release().await.unwrap(), Release::Released);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
    assert_eq!(store.calls("acquire").len(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_try_on_a_key_held_or_being_released_here_asks_nobody() {
    let store = Store::new();
    let lock = locks(&store).lock("k").unwrap();
    let guard = lock.acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    store.script("release", [Step::Slow(ms(100), ms(100))]);
    let release = tokio::spawn(guard.release());
    settle().await;
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(store.calls("try_acquire").is_empty());
    assert_eq!(release.await.unwrap().unwrap(), Release::Released);
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_try_behind_a_mere_waiter_asks_the_store() {
    let store = Store::new();
    store.seize("k", TTL * 100);
    let lock = locks(&store).lock("k").unwrap();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    settle().await;
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(store.calls("try_acquire").len(), 1);
    waiter.abort();
}

#[tokio::test(start_paused = true)]
async fn the_place_is_free_when_the_lock_is_lost_even_if_the_zombie_guard_lives_on() {
    let store = Store::new();
    let lock = locks(&store).lock("k").unwrap();
    let zombie = lock.clone().lease(Lease::fixed(TTL)).acquire().await.unwrap();
    let next = lock.acquire_within(TTL * 2).await.unwrap();
    assert!(next.is_held() && !zombie.is_held());
}

#[tokio::test(start_paused = true)]
async fn the_place_is_free_when_the_first_attempt_to_release_has_ended() {
    let store = Store::new();
    let lock = locks(&store).lock("k").unwrap();
    let guard = lock.acquire().await.unwrap();
    store.script("release", [Step::ReplyLost(ms(0))]);
    let start = Moment::now();
    let release = tokio::spawn(guard.release());
    let next = lock.acquire().await.unwrap();
    assert_eq!(since(start), ms(0), "the release goes on, and the next one did not wait for that");
    // The repeat finds another holder, before the deadline: the lost reply said yes.
    assert_eq!(release.await.unwrap().unwrap(), Release::Released);
    assert!(next.is_held() && store.holds("k"));
}

#[tokio::test(start_paused = true)]
async fn an_explicit_owner_never_queues_and_may_enter_again() {
    let store = Store::new();
    let me = Owner::random();
    let lock = locks(&store).lock("k").unwrap().owner(&me);
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    let third = lock.try_acquire().await.unwrap().unwrap();
    assert_eq!(outer.fencing_token(), inner.fencing_token());
    for guard in [outer, inner, third] {
        assert!(store.holds("k"));
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    assert!(!store.holds("k"));
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_unsupported_where_the_backend_is_not_reentrant() {
    let store = Store::new().with_guarantees(|guarantees| guarantees.reentrant = false);
    let lock = locks(&store).lock("k").unwrap().owner(&Owner::random());
    assert_eq!(lock.acquire().await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(lock.try_acquire().await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(store.operations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_counts_once_and_its_repeat_restarts_the_deadline() {
    let store = Store::new();
    store.script("acquire", [Step::ReplyLost(ms(300))]);
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    let acquires = store.calls("acquire");
    assert_eq!(acquires[0].claim, acquires[1].claim);
    assert_eq!(guard.deadline().saturating_duration_since(acquires[1].at), ms(988));
    // One release frees it, followed by an abandon: a copy of the first request may still land.
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert!(!store.holds("k"));
    settle().await;
    assert_eq!(store.operations(), ["acquire", "acquire", "release", "abandon"]);
    // The same for a guard that is dropped.
    let store = Store::new();
    store.script("acquire", [Step::ReplyLost(ms(300))]);
    drop(locks(&store).lock("k").unwrap().acquire().await.unwrap());
    settle().await;
    assert_eq!(store.operations(), ["acquire", "acquire", "release", "abandon"]);
}

#[tokio::test(start_paused = true)]
async fn only_unavailable_is_tried_again_while_acquiring() {
    let store = Store::new();
    store.script("acquire", [Step::Rejected]);
    let lock = locks(&store).lock("k").unwrap();
    assert_eq!(lock.acquire().await.unwrap_err().kind(), ErrorKind::Rejected);
    assert_eq!(store.calls("acquire").len(), 1);
    store.script("try_acquire", [Step::ReplyLost(ms(0))]);
    let error = lock.try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(store.calls("try_acquire").len(), 1);
    // Its effect was unknown, so it is undone.
    settle().await;
    assert!(!store.holds("k"));
    assert_eq!(store.calls("abandon").len(), 1);
}
