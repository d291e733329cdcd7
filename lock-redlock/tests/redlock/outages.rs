//! Nodes that are dead, silent, or refuse.

use std::sync::Arc;

use lock_core::{Backend, ErrorKind, Lease, Locks, Options, Release};
use lock_redis::Config;
use lock_redlock::Redlock;
use lock_testkit::RedisNodes;

use crate::ground::{ROOM, claim, locks, millis, options, soon, timed, until};

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Killed: connections are refused by the kernel.
    Dead,
    /// SIGSTOP: connections are accepted and stay silent.
    Silent,
    /// The server runs, and turns every request down.
    Refusing,
}

const FAULTS: [Fault; 3] = [Fault::Dead, Fault::Silent, Fault::Refusing];

fn strike(nodes: &RedisNodes, which: impl IntoIterator<Item = usize>, fault: Fault) {
    for node in which.into_iter().map(|at| &nodes[at]) {
        match fault {
            Fault::Dead => node.kill().unwrap(),
            Fault::Silent => node.stop().unwrap(),
            // The user may run nothing any more.
            Fault::Refusing => node.command::<()>(&["ACL", "SETUSER", "default", "-@all"]).unwrap(),
        }
    }
}

const LIMIT: std::time::Duration = millis(500);

/// What each call may take: three times the limit per node.
const BOUND: std::time::Duration = millis(1_500);

async fn open(nodes: &RedisNodes, fenced: bool) -> Redlock {
    // Far above the bound, so that it is the limit per node that keeps it.
    let config = Config::new().with_request_limit(millis(3_000));
    let redlock = Redlock::open(&nodes.urls(), config, options(LIMIT)).await.unwrap();
    if fenced { redlock.fenced() } else { redlock }
}

#[tokio::test]
async fn a_minority_that_fails_costs_no_more_than_three_limits() {
    for fault in FAULTS {
        for (count, down) in [(3, 1), (5, 2)] {
            for fenced in [false, true] {
                let what = format!("{down} of {count} {fault:?}, fenced: {fenced}");
                let nodes = RedisNodes::start(count).unwrap();
                let backend = open(&nodes, fenced).await;
                strike(&nodes, 0..down, fault);

                let locks = locks(backend, Lease::fixed(millis(20_000)));
                let lock = locks.lock("a").unwrap();
                let (guard, took) = timed(lock.acquire()).await;
                let guard = guard.unwrap();
                assert!(took < BOUND, "{what}: acquire took {took:?}");
                let (extended, took) = timed(guard.extend(millis(30_000))).await;
                extended.unwrap();
                assert!(took < BOUND, "{what}: extend took {took:?}");
                let (released, took) = timed(guard.release()).await;
                assert_eq!(released.unwrap(), Release::Released, "{what}");
                assert!(took < BOUND, "{what}: release took {took:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_minority_that_fails_while_the_lock_is_held_costs_it_nothing() {
    for fault in FAULTS {
        let nodes = RedisNodes::start(3).unwrap();
        let locks = locks(open(&nodes, false).await, Lease::renewed(millis(3_000)));
        let guard = soon(locks.lock("a").unwrap().acquire()).await.unwrap();
        strike(&nodes, [1], fault);
        tokio::time::sleep(millis(4_500)).await;
        assert!(guard.is_held(), "{fault:?}");
        let (released, took) = timed(guard.release()).await;
        assert_eq!(released.unwrap(), Release::Released, "{fault:?}");
        assert!(took < BOUND, "{fault:?}: {took:?}");
    }
}

#[tokio::test]
async fn without_a_majority_every_call_ends_and_says_unavailable() {
    for fault in FAULTS {
        for (count, down) in [(3, 2), (5, 3), (4, 2)] {
            let what = format!("{down} of {count} {fault:?}");
            let nodes = RedisNodes::start(count).unwrap();
            let backend = open(&nodes, true).await;
            let held = backend.try_acquire(&claim("held", millis(20_000))).await.unwrap().unwrap();
            strike(&nodes, 0..down, fault);

            let fresh = claim("a", millis(20_000));
            let (answer, took) = timed(backend.try_acquire(&fresh)).await;
            let kind = answer.unwrap_err().kind();
            // Whoever must give rights back is told so.
            let expected = if matches!(fault, Fault::Refusing) { ErrorKind::Rejected } else { ErrorKind::Unavailable };
            assert_eq!(kind, expected, "{what}");
            assert!(took < BOUND, "{what}: acquire took {took:?}");
            let (answer, took) = timed(backend.release(&held)).await;
            assert_eq!(answer.unwrap_err().kind(), expected, "{what}");
            assert!(took < BOUND, "{what}: release took {took:?}");
            let (answer, took) = timed(backend.abandon(&fresh)).await;
            assert_eq!(answer.unwrap_err().kind(), expected, "{what}");
            assert!(took < BOUND, "{what}: abandon took {took:?}");
            let (answer, took) = timed(backend.inspect(&held.claim.key)).await;
            assert_eq!(answer.unwrap_err().kind(), expected, "{what}");
            assert!(took < BOUND, "{what}: inspect took {took:?}");
        }
    }
}

#[tokio::test]
async fn with_all_nodes_dead_a_release_ends_and_a_shutdown_too() {
    let nodes = RedisNodes::start(3).unwrap();
    let options = Options::new().with_lease(Lease::fixed(millis(3_000))).with_unavailable_after(millis(500));
    let locks = Locks::with_options(Arc::new(open(&nodes, false).await), options);
    let (first, second) = (locks.lock("a").unwrap(), locks.lock("b").unwrap());
    let (first, _second) = (first.acquire().await.unwrap(), second.acquire().await.unwrap());
    strike(&nodes, 0..3, Fault::Silent);
    let (answer, took) = timed(first.release()).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(took < millis(5_000), "{took:?}");
    soon(locks.shutdown()).await.unwrap();
}

#[tokio::test]
async fn a_minority_may_be_away_at_the_start_and_takes_part_when_it_is_there() {
    let nodes = RedisNodes::start(3).unwrap();
    strike(&nodes, [0], Fault::Dead);
    let backend = open(&nodes, false).await;
    let grant = backend.try_acquire(&claim("a", millis(20_000))).await.unwrap().unwrap();
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    nodes[0].restart().unwrap();
    strike(&nodes, [1], Fault::Dead);
    let limit = lock_core::Moment::now().saturating_add(ROOM);
    // A call that began while the node was away may still fail.
    let grant = loop {
        match backend.try_acquire(&claim("b", millis(20_000))).await {
            Ok(Some(grant)) => break grant,
            other => assert!(lock_core::Moment::now() < limit, "{other:?}"),
        }
    };
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn without_a_majority_at_the_start_it_says_so() {
    for fault in [Fault::Dead, Fault::Silent] {
        let nodes = RedisNodes::start(3).unwrap();
        strike(&nodes, [0, 2], fault);
        let opened = soon(Redlock::connect(nodes.urls())).await;
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("1 of 3 nodes answered and 2 are needed"), "{error}");
    }
}

#[tokio::test]
async fn a_majority_that_comes_back_serves_a_waiter() {
    let nodes = RedisNodes::start(3).unwrap();
    let locks = Arc::new(locks(open(&nodes, false).await, Lease::fixed(millis(20_000))));
    strike(&nodes, [0, 1], Fault::Silent);
    let lock = locks.lock("a").unwrap();
    let waiter = tokio::spawn(async move { lock.acquire_within(ROOM).await });
    tokio::time::sleep(millis(700)).await;
    for node in [0, 1] {
        nodes[node].cont().unwrap();
    }
    let guard = soon(waiter).await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    until("no vote is left", || nodes.iter().all(|node| node.command::<u64>(&["DBSIZE"]).unwrap() == 0)).await;
}
