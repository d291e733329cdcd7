use std::error::Error as _;

use super::store::{Step, Store};
use super::{TTL, locks, locks_with, ms, pass, settle, since};
use crate::{Effect, Error, ErrorKind, Moment, Options, Owner};

#[tokio::test(start_paused = true)]
async fn acquire_bears_an_outage_for_as_long_as_it_was_told_and_names_the_last_error() {
    let store = Store::new();
    store.always_all(Step::Refused);
    let start = Moment::now();
    let error = locks(&store).lock("k").unwrap().acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None));
    assert!(since(start) >= ms(5_000) && since(start) <= ms(5_100), "{:?}", since(start));
    let source = error.source().unwrap().downcast_ref::<Error>().unwrap();
    assert!(source.to_string().contains("as the script says"), "{source}");
    assert!(error.to_string().contains("5s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_in_time_is_an_acquired_lock() {
    let store = Store::new();
    store.script("acquire", [Step::Refused; 6]);
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_outage_counts_once_per_key_and_not_per_waiter() {
    let store = Store::new();
    store.always_all(Step::RequestLost(ms(300)));
    let lock = locks_with(&store, Options::new().with_unavailable_after(ms(2_000))).lock("k").unwrap();
    let start = Moment::now();
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { (lock.acquire().await.unwrap_err(), Moment::now()) })
        })
        .collect();
    for task in tasks {
        let (error, at) = task.await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let after = at.saturating_duration_since(start);
        assert!(after >= ms(2_000) && after <= ms(2_310), "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_goes_away_while_tasks_wait_is_unavailable_for_all_of_them() {
    let store = Store::new();
    store.seize("k", ms(3_000));
    let lock = locks_with(&store, Options::new().with_unavailable_after(ms(500))).lock("k").unwrap();
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { (lock.acquire().await.unwrap_err(), Moment::now()) })
        })
        .collect();
    pass(ms(2_900)).await;
    store.always_all(Step::Refused);
    for task in tasks {
        let (error, at) = task.await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        // It has been away since the wait failed, not since the wait began.
        let after = at.saturating_duration_since(store.calls("acquire")[0].at);
        assert!(after >= ms(3_450) && after <= ms(3_600), "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn within_a_limit_of_its_own_a_caller_tries_until_then_and_says_which_it_was() {
    let store = Store::new();
    let lock = locks(&store).lock("k").unwrap();
    store.always("acquire", Step::Refused);
    let start = Moment::now();
    let error = lock.acquire_within(ms(8_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(since(start) >= ms(8_000) && since(start) <= ms(8_002), "{:?}", since(start));
    // A store that does not answer at all.
    store.always("acquire", Step::RequestLost(ms(60_000)));
    let error = lock.acquire_within(ms(1_000)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
    assert!(error.to_string().contains("did not answer"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn contention_after_an_outage_is_contention() {
    let store = Store::new();
    store.seize("k", TTL * 100);
    store.script("acquire", [Step::Refused, Step::Refused]);
    let error = locks(&store).lock("k").unwrap().acquire_within(ms(8_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // And a wait without a limit goes on for longer than an outage would be borne.
    store.script("acquire", [Step::Refused, Step::Refused]);
    let lock = locks(&store).lock("k").unwrap();
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    pass(ms(20_000)).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "those behind the first neither");
    store.clear("k");
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_come_after_an_outage_find_the_store_again() {
    let store = Store::new();
    store.always("acquire", Step::RequestLost(ms(400)));
    let locks = locks_with(&store, Options::new().with_unavailable_after(ms(500)));
    let lock = locks.lock("k").unwrap();
    // Callers that overlap, so that the key is never forgotten between them.
    let mut tasks = Vec::new();
    for _ in 0..10 {
        let lock = lock.clone();
        tasks.push(tokio::spawn(async move { lock.acquire().await.map(drop) }));
        pass(ms(200)).await;
    }
    store.always("acquire", Step::Slow(ms(100), ms(100)));
    for _ in 0..10 {
        let lock = lock.clone();
        tasks.push(tokio::spawn(async move { lock.acquire().await.map(drop) }));
        pass(ms(200)).await;
    }
    settle().await;
    assert!(tasks.pop().unwrap().await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_first_call_of_a_newcomer_is_waited_for_also_in_an_old_outage() {
    let store = Store::new();
    store.always("acquire", Step::RequestLost(ms(400)));
    let locks = locks_with(&store, Options::new().with_unavailable_after(ms(500)));
    // Owners of their own do not queue, so each asks the store itself.
    let acquire = || {
        let lock = locks.lock("k").unwrap().owner(&Owner::random());
        tokio::spawn(async move { lock.acquire().await.map(drop) })
    };
    let first = acquire();
    pass(ms(400)).await;
    let second = acquire();
    pass(ms(300)).await;
    assert_eq!(first.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    store.always("acquire", Step::Slow(ms(100), ms(100)));
    let third = acquire();
    assert!(third.await.unwrap().is_ok());
    drop(second);
}
