//! The line of those who wait: its order, and whom a release wakes (S53).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{Release, Stop};
use lock_testkit::ZooKeeperEnsemble;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::ground::{Ground, ROOM, claim, eventually, metric, nodes, open, take};
use lock_zookeeper::Config;

/// A token is the transaction that put its holder in line, so tokens in order are turns in order.
#[tokio::test(flavor = "multi_thread")]
async fn three_contenders_keep_the_order_over_500_rounds_each() {
    let ensemble = ZooKeeperEnsemble::start(3).unwrap();
    let entered = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(Mutex::new(Vec::new()));
    let mut contenders = JoinSet::new();
    for contender in 0..3 {
        let backend = open(&ensemble.hosts(), Config::new()).await;
        let (entered, turns) = (Arc::clone(&entered), Arc::clone(&turns));
        contenders.spawn(async move {
            for _ in 0..500 {
                let grant = backend.acquire(&claim("fifo"), &Stop::new()).await.unwrap().unwrap();
                assert!(!entered.swap(true, Ordering::SeqCst), "two holders at once");
                turns.lock().unwrap().push((grant.fencing_token.unwrap().value(), contender));
                entered.store(false, Ordering::SeqCst);
                assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
            }
        });
    }
    while let Some(ended) = contenders.join_next().await {
        ended.unwrap();
    }
    let turns = turns.lock().unwrap();
    assert_eq!(turns.len(), 1_500);
    assert!(turns.is_sorted_by(|before, after| before.0 < after.0));
    let mut of_each = HashMap::<_, u32>::new();
    for (_, contender) in &*turns {
        *of_each.entry(*contender).or_default() += 1;
    }
    assert_eq!(of_each, HashMap::from([(0, 500), (1, 500), (2, 500)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_release_wakes_one_of_a_hundred_waiters() {
    const WAITERS: usize = 100;

    let ground = Ground::new();
    let (holder, waiting) = (ground.direct().await, ground.direct().await);
    let held = take(&holder, "herd").await;
    let mut waits = JoinSet::new();
    for _ in 0..WAITERS {
        let backend = Arc::clone(&waiting);
        waits.spawn(async move { backend.acquire(&claim("herd"), &Stop::new()).await.unwrap().unwrap() });
    }
    let counted = |name: &str| metric(&ground.ensemble, name);
    eventually("each waiter has its watch", async || counted("zk_watch_count") == 100).await;
    assert_eq!(counted("zk_sum_node_deleted_watch_count"), 0);

    assert_eq!(holder.release(&held).await.unwrap(), Release::Released);
    let grant = timeout(ROOM, waits.join_next()).await.unwrap().unwrap().unwrap();
    // Time for a crowd to show itself.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(counted("zk_sum_node_deleted_watch_count"), 1, "watches that the release fired");
    assert_eq!(counted("zk_watch_count"), 99, "the others still wait for the one before them");

    // And so on until nobody waits.
    assert_eq!(waiting.release(&grant).await.unwrap(), Release::Released);
    while let Some(grant) = timeout(ROOM, waits.join_next()).await.unwrap() {
        assert_eq!(waiting.release(&grant.unwrap()).await.unwrap(), Release::Released);
    }
    assert_eq!((counted("zk_sum_node_deleted_watch_count"), counted("zk_watch_count")), (100, 0));
    assert!(nodes(&ground.look().await, "/hasp/herd").await.is_empty());
}

/// One that waits in the middle goes away: the one behind it waits for the one before, and is not granted.
#[tokio::test(flavor = "multi_thread")]
async fn a_gap_in_the_line_lets_nobody_in_early() {
    let ground = Ground::new();
    let (holder, look) = (ground.direct().await, ground.look().await);
    let held = take(&holder, "gap").await;
    let (middle, last) = (claim("gap"), claim("gap"));
    let mut waits = Vec::new();
    for claim in [&middle, &last] {
        let (backend, claim, stop) = (ground.direct().await, claim.clone(), Stop::new());
        let waiting = stop.clone();
        waits.push(tokio::spawn(async move { backend.acquire(&claim, &stop).await }));
        eventually("it waits", async || waiting.is_waiting()).await;
    }
    // Somebody deletes its node, as an operator might.
    let mut children = nodes(&look, "/hasp/gap").await;
    children.sort_by_key(|name| name.rsplit('-').next().map(ToOwned::to_owned));
    look.delete(&format!("/hasp/gap/{}", children[1]), None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waits[1].is_finished(), "granted although the lock is held");
    assert_eq!(holder.release(&held).await.unwrap(), Release::Released);
    let grant = timeout(ROOM, waits.remove(1)).await.unwrap().unwrap().unwrap().unwrap();
    assert_eq!(grant.claim.id, last.id);
}
