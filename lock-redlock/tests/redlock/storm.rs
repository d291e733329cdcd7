//! Faults without pause: whatever the network and the nodes do that costs no data, no two hold at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use lock_core::{Effect, Lease};
use lock_testkit::fault::{Armed, Request};
use lock_testkit::history::{Actor, History, Observable};

use crate::ground::{Ground, locks, millis, soon};

const CLIENTS: usize = 4;
const NODES: usize = 5;
const FAULTS: usize = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_lost_late_and_cut_requests_and_silent_nodes_makes_no_two_holders() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let first = Ground::new(NODES);
    let mut grounds = vec![];
    for _ in 1..CLIENTS {
        grounds.push(Ground::on(Arc::clone(&first.nodes)));
    }
    grounds.push(first);
    let history = History::new();
    let over = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    for (number, ground) in grounds.iter().enumerate() {
        let locks = locks(ground.fenced(millis(60)).await, Lease::fixed(millis(400)));
        let actor = history.actor(format!("client {number}"));
        clients.push(tokio::spawn(contend(locks, actor, Arc::clone(&over), Rng::with_seed(rng.u64(..)))));
    }

    let mut armed: Vec<Armed> = Vec::new();
    let mut silent: Vec<usize> = Vec::new();
    for _ in 0..FAULTS {
        let proxy = &grounds[rng.usize(..CLIENTS)].proxies[rng.usize(..NODES)];
        let script = || proxy.when(Request::command("EVALSHA"));
        match rng.u8(..6) {
            0 => proxy.cut_connections(),
            1 => armed.push(script().lose_reply()),
            2 => armed.push(script().hold_request()),
            3 => armed.push(script().hold_reply()),
            4 if silent.len() < 2 => {
                let node = rng.usize(..NODES);
                if !silent.contains(&node) {
                    grounds[0].nodes[node].stop().unwrap();
                    silent.push(node);
                }
            }
            _ => {
                if let Some(node) = silent.pop() {
                    grounds[0].nodes[node].cont().unwrap();
                }
            }
        }
        // What is held goes on its way sooner or later, also after its client has given up.
        if armed.len() > 12 {
            drop(armed.swap_remove(rng.usize(..armed.len())));
        }
        tokio::time::sleep(millis(rng.u64(5..50))).await;
    }
    drop(armed);
    for node in silent {
        grounds[0].nodes[node].cont().unwrap();
    }
    tokio::time::sleep(millis(1_000)).await;
    over.store(true, Ordering::Relaxed);
    let mut holds = 0;
    for client in clients {
        holds += soon(client).await.unwrap();
    }
    println!("{holds} holds");
    assert!(holds > 10, "{holds} holds");
    let events = history.events();
    for observable in [Observable::InLeaseOverlap, Observable::TokenRegression, Observable::DishonestOutcome] {
        let found = observable.find(&events);
        assert!(found.is_empty(), "seed {seed}, {holds} holds: {found:?}");
    }
}

async fn contend(locks: lock_core::Locks, actor: Actor, over: Arc<AtomicBool>, mut rng: Rng) -> u64 {
    let lock = locks.lock("a").unwrap();
    let mut holds = 0;
    while !over.load(Ordering::Relaxed) {
        let attempt = actor.acquiring("a");
        // One round, or several of one claim.
        let answer = match rng.bool() {
            true => lock.try_acquire().await,
            false => lock.acquire_within(millis(600)).await.map(Some),
        };
        match answer {
            Ok(Some(guard)) => {
                holds += 1;
                let hold = attempt.granted(guard.fencing_token(), guard.deadline());
                tokio::time::sleep(millis(rng.u64(..40))).await;
                hold.releasing();
                match guard.release().await {
                    Ok(answer) => hold.released(answer),
                    Err(error) => hold.release_failed(error.effect()),
                }
            }
            Ok(None) => attempt.busy(),
            // The driver undoes it; what nobody was handed nobody uses.
            Err(_failed) => attempt.failed(Effect::Unknown),
        }
        tokio::time::sleep(millis(rng.u64(5..60))).await;
    }
    holds
}
