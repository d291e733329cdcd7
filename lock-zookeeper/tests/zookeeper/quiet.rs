//! Paths on which nobody else contends: what they save, and that it is never a guess.

use std::sync::Arc;

use lock_core::{Backend, ErrorKind, Release};
use lock_zookeeper::{Config, Naming};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::ground::{Ground, claim, eventually, make_path, make_quiet, metric, nodes, open, take};

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_nobody_else_wants_is_taken_by_a_create_and_given_back_by_a_delete() {
    const PAIRS: u64 = 200;

    let ground = Ground::new();
    let ours = ground.direct().await;
    make_quiet(&ours, "own").await;
    let counted = || (metric(&ground.ensemble, "zk_cnt_updatelatency"), metric(&ground.ensemble, "zk_cnt_readlatency"));
    let (writes, reads) = counted();
    for _ in 0..PAIRS {
        make_path(&ours, "own").await;
    }
    let (writes, reads) = (counted().0 - writes, counted().1 - reads);
    assert_eq!(writes, 2 * PAIRS);
    // Those of the session's heartbeat.
    assert!(reads < PAIRS / 2, "{reads} reads for {PAIRS} pairs");
    assert_eq!(metric(&ground.ensemble, "zk_watch_count"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_between_two_turns_is_seen() {
    let ground = Ground::new();
    let (ours, theirs) = (ground.direct().await, ground.direct().await);
    let kazoo = open(&ground.ensemble.hosts(), Config::new().with_naming(Naming::Kazoo)).await;
    for other in [&theirs, &ours] {
        make_quiet(&ours, "between").await;
        let held = take(other, "between").await;
        assert!(ours.try_acquire(&claim("between")).await.unwrap().is_none());
        assert_eq!(other.release(&held).await.unwrap(), Release::Released);
    }
    make_quiet(&ours, "between").await;
    let held = take(&kazoo, "between").await;
    assert_eq!(ours.try_acquire(&claim("between")).await.unwrap_err().kind(), ErrorKind::Rejected);
    assert_eq!(kazoo.release(&held).await.unwrap(), Release::Released);
    // One that has come and gone.
    make_quiet(&ours, "between").await;
    make_path(&theirs, "between").await;
    make_path(&ours, "between").await;
}

/// Two that take turns: each finds the other's traces, and neither lists the line later than beside its create.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_take_turns_set_no_watch() {
    let ground = Ground::new();
    let (ours, theirs) = (ground.direct().await, ground.direct().await);
    for _ in 0..10 {
        make_path(&ours, "turns").await;
        make_path(&theirs, "turns").await;
    }
    assert_eq!(metric(&ground.ensemble, "zk_watch_count"), 0);
}

/// The children are counted anew then, and the count arrives at our number with somebody before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_was_made_anew_proves_nothing() {
    let ground = Ground::new();
    let (ours, theirs, look) = (ground.direct().await, ground.direct().await, ground.look().await);
    make_quiet(&ours, "anew").await;
    let held = make_anew(&look, &theirs, "anew").await;
    assert!(ours.try_acquire(&claim("anew")).await.unwrap().is_none(), "two holders");
    let children = nodes(&look, "/hasp/anew").await;
    assert!(children[0].ends_with("0000000003"), "{children:?}");
    assert_eq!(theirs.release(&held).await.unwrap(), Release::Released);
    make_path(&ours, "anew").await;
}

/// The same while the server cannot tell it.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_was_made_anew_while_the_connection_was_away_proves_nothing() {
    let ground = Ground::new();
    let (ours, theirs, look) = (ground.proxied().await, ground.direct().await, ground.look().await);
    make_quiet(&ours, "away").await;
    ground.proxy.black_hole();
    let held = make_anew(&look, &theirs, "away").await;
    ground.proxy.cut_connections();
    ground.proxy.heal();
    eventually("the connection is back", async || ours.inspect(&held.claim.key).await.is_ok()).await;
    assert!(ours.try_acquire(&claim("away")).await.unwrap().is_none(), "two holders");
    assert_eq!(theirs.release(&held).await.unwrap(), Release::Released);
}

/// Of each path that is known for a quiet one, a watch is kept; when it goes, so does what is known.
#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_path_that_is_deleted_costs_nothing_but_its_making() {
    let ground = Ground::new();
    let (ours, look) = (ground.direct().await, ground.look().await);
    for _ in 0..3 {
        make_quiet(&ours, "deleted").await;
        assert_eq!(metric(&ground.ensemble, "zk_watch_count"), 1);
        look.delete("/hasp/deleted", None).await.unwrap();
        assert_eq!(metric(&ground.ensemble, "zk_watch_count"), 0);
    }
}

/// Deletes the path of a lock that [`make_quiet`] has made quiet, and makes it anew with as many children as it had; the last
/// of them holds the lock.
async fn make_anew(look: &Client, theirs: &Arc<dyn Backend>, name: &str) -> lock_core::Grant {
    let path = format!("/hasp/{name}");
    look.delete(&path, None).await.expect("it is empty");
    let made = look.create(&path, b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await;
    made.expect("it is gone");
    for _ in 0..3 {
        make_path(theirs, name).await;
    }
    take(theirs, name).await
}
