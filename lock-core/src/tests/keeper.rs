use super::store::{Step, Store};
use super::{TTL, locks, locks_with, ms, pass, settle};
use crate::{Lease, LossReason, Options, Release};

#[tokio::test(start_paused = true)]
async fn renewals_that_are_due_soon_travel_together() {
    let store = Store::new();
    let locks = locks(&store);
    let mut guards = Vec::new();
    for index in 0..20 {
        guards.push(locks.lock(format!("k{index}")).unwrap().acquire().await.unwrap());
        pass(ms(1)).await;
    }
    pass(TTL * 5).await;
    assert!(guards.iter().all(crate::LockGuard::is_held));
    let renewals = store.calls("renew");
    // A third of the ttl, 15 rounds; one batch for all from the second round on.
    assert!(renewals.len() <= 20, "{}", renewals.len());
    assert_eq!(renewals.last().unwrap().batch, 20);
}

#[tokio::test(start_paused = true)]
async fn one_slow_renewal_delays_no_other() {
    let store = Store::new();
    let locks = locks(&store);
    let slow = locks.lock("slow").unwrap().acquire().await.unwrap();
    pass(ms(100)).await;
    let other = locks.lock("other").unwrap().acquire().await.unwrap();
    store.script("renew", [Step::RequestLost(ms(600_000))]);
    pass(TTL * 3).await;
    assert!(!slow.is_held());
    assert!(other.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_cycle_that_is_over_leaves_no_renewal() {
    let store = Store::new();
    let lock = locks(&store).lock("k").unwrap();
    for _ in 0..1_000 {
        assert_eq!(lock.acquire().await.unwrap().release().await.unwrap(), Release::Released);
    }
    let calls = store.operations().len();
    pass(TTL * 3).await;
    assert_eq!(store.operations().len(), calls);
    assert!(store.calls("renew").is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_for_keys_that_nobody_holds_or_wants() {
    let store = Store::new();
    let locks = locks(&store);
    for index in 0..10_000 {
        drop(locks.lock(format!("k{index}")).unwrap().acquire().await.unwrap());
    }
    settle().await;
    pass(ms(10)).await;
    assert!(locks.handle.driver.is_idle());
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_panics_in_the_keeper_costs_no_other_lock() {
    let store = Store::new();
    let locks = locks(&store);
    let guard = locks.lock("k").unwrap().acquire().await.unwrap();
    store.script("renew", [Step::Panic]);
    store.script("release", [Step::Panic]);
    pass(TTL * 3).await;
    assert!(guard.is_held());
    drop(guard);
    pass(ms(500)).await;
    assert!(store.is_empty());
}

#[test]
fn locks_need_no_runtime_and_outlive_one() {
    let store = Store::new();
    let locks = locks(&store);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let first = runtime();
    let guard = first.block_on(async { locks.lock("k").unwrap().acquire().await.unwrap() });
    drop(first);
    runtime().block_on(async {
        // The lease has no keeper now; the next use starts one.
        assert!(guard.is_held());
        let other = locks.lock("other").unwrap().acquire().await.unwrap();
        pass(TTL * 3).await;
        assert!(guard.is_held() && other.is_held());
    });
    // Without any keeper it is lost on time: the clock is enough.
    runtime().block_on(async {
        pass(TTL * 6).await;
        assert!(!guard.is_held());
    });
}

#[test]
fn waiting_for_the_loss_starts_a_keeper_too() {
    let store = Store::new();
    let locks = locks(&store);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let first = runtime();
    let guard = first.block_on(async { locks.lock("k").unwrap().acquire().await.unwrap() });
    drop(first);
    runtime().block_on(async {
        assert!(tokio::time::timeout(TTL * 3, guard.lost()).await.is_err());
        assert!(guard.is_held());
    });
}

#[test]
fn a_wait_whose_runtime_and_locks_have_ended_is_let_go() {
    let store = Store::new();
    store.seize("k", TTL * 3_600);
    for tasks_first in [true, false] {
        let keepers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let options = Options::new().with_keeper_on(keepers.handle().clone());
        let lock = locks_with(&store, options).lock("k").unwrap();
        runtime.block_on(async {
            tokio::spawn(async move { lock.acquire().await.map(drop) });
            settle().await;
        });
        assert_eq!(store.waiting(), 1);
        // The keeper may end before the task whose call it would run, or after it.
        if tasks_first {
            // It cannot run the call: its only worker is busy until it ends.
            let (busy, is_busy) = std::sync::mpsc::channel();
            keepers.spawn(async move {
                busy.send(()).unwrap();
                std::thread::sleep(ms(50));
            });
            is_busy.recv().unwrap();
            drop(runtime);
            keepers.shutdown_background();
        } else {
            drop(keepers);
            drop(runtime);
        }
        let limit = std::time::Instant::now() + TTL * 20;
        while store.waiting() > 0 {
            assert!(std::time::Instant::now() < limit, "the wait lives on");
            std::thread::sleep(ms(5));
        }
    }
}

#[test]
fn a_keeper_on_a_runtime_of_its_own_renews_while_user_code_blocks() {
    let store = Store::new();
    let keepers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let options = Options::new().with_keeper_on(keepers.handle().clone());
    let locks = locks_with(&store, options);
    let users = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    users.block_on(async {
        let guard = locks.lock("k").unwrap().lease(Lease::renewed(ms(300))).acquire().await.unwrap();
        std::thread::sleep(ms(900));
        assert!(guard.is_held());
        assert!(store.calls("renew").len() >= 3);
    });
}

#[test]
fn a_blocked_runtime_loses_the_lock_and_says_so() {
    let store = Store::new();
    let users = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    users.block_on(async {
        let guard = locks(&store).lock("k").unwrap().lease(Lease::renewed(ms(100))).acquire().await.unwrap();
        std::thread::sleep(ms(200));
        assert!(!guard.is_held());
        assert_eq!(guard.lost().await, LossReason::Expired);
    });
}
