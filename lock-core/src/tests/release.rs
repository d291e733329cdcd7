use super::store::{Step, Store};
use super::{TTL, locks, locks_with, ms, pass, settle, since};
use crate::{Effect, ErrorKind, Lease, LossReason, Moment, Options, Release};

#[tokio::test(start_paused = true)]
async fn a_release_waits_for_the_renewal_in_flight_and_is_never_followed_by_one() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    store.script("renew", [Step::Slow(ms(100), ms(100))]);
    pass(ms(400)).await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let (renewal, release) = (store.calls("renew")[0].at, store.calls("release")[0].at);
    assert!(release.saturating_duration_since(renewal) >= ms(200));
    pass(TTL * 5).await;
    assert_eq!(store.operations(), ["acquire", "renew", "release"]);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_after_a_lost_reply_that_finds_it_gone_before_the_deadline_means_released() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    store.script("release", [Step::ReplyLost(ms(100))]);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert_eq!(store.calls("release").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_is_answered_after_the_deadline_means_not_held() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().lease(Lease::fixed(TTL)).acquire().await.unwrap();
    store.script("release", [Step::RequestLost(ms(800)), Step::Slow(ms(250), ms(0))]);
    assert_eq!(guard.release().await.unwrap(), Release::NotHeld);
}

#[tokio::test(start_paused = true)]
async fn a_release_is_sent_after_the_deadline_too_and_the_store_answers() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().lease(Lease::fixed(TTL)).acquire().await.unwrap();
    pass(TTL * 2).await;
    assert_eq!(guard.release().await.unwrap(), Release::NotHeld);
    assert_eq!(store.calls("release").len(), 1);
    let guard = locks(&store).lock("k").unwrap().lease(Lease::fixed(TTL)).acquire().await.unwrap();
    pass(TTL * 2).await;
    drop(guard);
    settle().await;
    assert_eq!(store.calls("release").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_late_release_on_a_dead_connection_is_sent_once_more() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().lease(Lease::fixed(TTL)).acquire().await.unwrap();
    pass(TTL * 2).await;
    store.script("release", [Step::RequestLost(ms(10))]);
    assert_eq!(guard.release().await.unwrap(), Release::NotHeld);

    let guard = locks(&store).lock("k").unwrap().lease(Lease::fixed(TTL)).acquire().await.unwrap();
    pass(TTL * 2).await;
    let before = store.calls("release").len();
    store.always("release", Step::RequestLost(ms(10)));
    let start = Moment::now();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(since(start) <= ms(100), "{:?}", since(start));
    assert!((2..=3).contains(&(store.calls("release").len() - before)), "twice, and the keeper may be at it");
}

#[tokio::test(start_paused = true)]
async fn a_failed_release_says_so_stops_the_renewal_and_the_keeper_goes_on() {
    let store = Store::new();
    let locks = locks_with(&store, Options::new().with_unavailable_after(ms(300)));
    let guard = locks.lock("k").unwrap().acquire().await.unwrap();
    store.always("release", Step::RequestLost(ms(10)));
    let start = Moment::now();
    let error = guard.release().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
    assert!(since(start) <= ms(400));
    store.always("release", Step::Answer);
    pass(ms(200)).await;
    assert!(!store.holds("k"));
    assert!(store.calls("renew").is_empty());
    // A release that lands late compares the claim and does nothing, so there is nothing to undo.
    let calls = store.operations().len();
    pass(TTL * 5).await;
    assert_eq!(store.operations().len(), calls);
    assert!(store.calls("abandon").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_release_ends_in_bounded_time_with_the_store_down() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    store.always_all(Step::Refused);
    let start = Moment::now();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(since(start) <= ms(1_000), "{:?}", since(start));
}

#[tokio::test(start_paused = true)]
async fn a_watch_says_that_its_guard_was_given_back() {
    let store = Store::new();
    let lock = locks(&store).lock("k").unwrap();
    let guard = lock.acquire().await.unwrap();
    let watch = guard.watch();
    assert!(watch.is_held());
    drop(guard);
    assert!(!watch.is_held() && watch.remaining().is_zero());
    assert_eq!(watch.lost().await, LossReason::Released);
    let guard = lock.acquire().await.unwrap();
    let watch = guard.watch();
    let told = tokio::spawn(async move { watch.lost().await });
    settle().await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert_eq!(told.await.unwrap(), LossReason::Released);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_is_given_back_and_repeated_until_its_lease_is_over() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    store.script("release", [Step::Refused, Step::Refused, Step::Refused]);
    drop(guard);
    pass(ms(600)).await;
    assert_eq!(store.calls("release").len(), 4);
    assert!(!store.holds("k") && store.calls("renew").is_empty());
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    store.always("release", Step::Refused);
    drop(guard);
    pass(TTL * 2).await;
    let tries = store.calls("release").len();
    pass(TTL * 5).await;
    assert_eq!(store.calls("release").len(), tries, "nothing is owed after the ttl");
}

#[test]
fn a_guard_may_be_dropped_outside_any_runtime() {
    let store = Store::new();
    let locks = locks(&store);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let first = runtime();
    let guard = first.block_on(async { locks.lock("k").unwrap().acquire().await.unwrap() });
    drop(first);
    drop(guard);
    assert!(store.calls("release").is_empty());
    // What is owed is kept, and paid by the next keeper, which the next use starts.
    runtime().block_on(async {
        let other = locks.lock("other").unwrap().acquire().await.unwrap();
        settle().await;
        assert!(!store.holds("k"));
        drop(other);
        settle().await;
    });
    assert!(store.is_empty());
}

#[test]
fn a_guard_may_be_dropped_while_its_runtime_shuts_down() {
    let store = Store::new();
    let locks = locks(&store);
    let first = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let (held, is_held) = std::sync::mpsc::channel();
    for key in ["a", "b"] {
        let (lock, held) = (locks.lock(key).unwrap().lease(Lease::renewed(TTL * 60)), held.clone());
        first.spawn(async move {
            let _guard = lock.acquire().await.unwrap();
            held.send(()).unwrap();
            std::future::pending::<()>().await;
        });
    }
    is_held.recv().unwrap();
    is_held.recv().unwrap();
    drop(first);
    // Both were given back, or are owed to the store and given back by the next keeper.
    let second = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    second.block_on(async {
        assert_eq!(locks.lock("c").unwrap().acquire().await.unwrap().release().await.unwrap(), Release::Released);
        let given_back = async {
            while store.holds("a") || store.holds("b") {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TTL * 10, given_back).await.unwrap();
    });
}
