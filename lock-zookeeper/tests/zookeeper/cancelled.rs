//! Acquisitions that are dropped (P38, S54): none leaves a node that everybody behind it would wait for.

use std::time::Duration;

use lock_core::{ErrorKind, Release};
use lock_testkit::fault::Direction;

use crate::ground::{Ground, eventually, locks, make_path, millis, nodes, take};

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_that_is_dropped_at_any_moment_leaves_no_node() {
    let ground = Ground::new();
    let (ours, look) = (ground.direct().await, ground.look().await);
    let locks = locks(&ours);
    for round in 0..100 {
        let lock = locks.lock("free").unwrap();
        // A whole acquire takes about a millisecond.
        let limit = Duration::from_micros(40 * round);
        drop(tokio::time::timeout(limit, lock.acquire()).await);
    }
    eventually("nothing is left", async || nodes(&look, "/hasp/free").await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_dropped_or_runs_out_leaves_no_node() {
    let ground = Ground::new();
    let (ours, theirs, look) = (ground.direct().await, ground.direct().await, ground.look().await);
    let held = take(&theirs, "busy").await;
    let locks = locks(&ours);
    let mut waits = Vec::new();
    for round in 0..40 {
        let lock = locks.lock("busy").unwrap();
        waits.push(tokio::spawn(async move {
            drop(tokio::time::timeout(Duration::from_micros(500 * round), lock.acquire()).await);
            lock.acquire_within(millis(round)).await.map(drop).unwrap_err().kind()
        }));
    }
    for wait in waits {
        let kind = wait.await.unwrap();
        assert!(matches!(kind, ErrorKind::TimedOut | ErrorKind::Unavailable), "{kind:?}");
    }
    eventually("the holder stands alone", async || nodes(&look, "/hasp/busy").await.len() == 1).await;
    assert_eq!(theirs.release(&held).await.unwrap(), Release::Released);
    // A dropped wait may even now be running to its end.
    eventually("nothing is left", async || nodes(&look, "/hasp/busy").await.is_empty()).await;
}

/// The node is made, its reply never comes, its caller has gone, and the connection breaks.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_acquisition_whose_reply_is_lost_leaves_no_node() {
    let ground = Ground::new();
    let (ours, look) = (ground.proxied().await, ground.look().await);
    make_path(&ours, "gone").await;
    let locks = locks(&ours);

    ground.proxy.set_delay(Direction::ToClient, Duration::from_secs(600));
    let lock = locks.lock("gone").unwrap();
    let acquiring = tokio::spawn(async move { lock.acquire().await.map(drop) });
    eventually("the node is made", async || !nodes(&look, "/hasp/gone").await.is_empty()).await;
    acquiring.abort();
    ground.proxy.set_delay(Direction::ToClient, Duration::ZERO);
    ground.proxy.cut_connections();
    eventually("nothing is left", async || nodes(&look, "/hasp/gone").await.is_empty()).await;
}
