//! Nodes that forget their votes: the documented weakness, and what prevents it.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Backend, ErrorKind, Grant, Moment, Release, Renew};
use lock_redlock::Redlock;

use crate::ground::{Ground, LIMIT, ROOM, claim, millis, take, until};

/// A holds the lock on nodes 0 and 1, and node 2 has not heard of it. B reaches all three.
async fn held_by_a_bare_majority(ours: &Ground, theirs: &Ground, ttl: Duration) -> (Redlock, Grant, Redlock) {
    let (a, b) = (ours.redlock(LIMIT).await, theirs.redlock(LIMIT).await);
    ours.proxies[2].refuse_connections();
    ours.proxies[2].cut_connections();
    let held = take(&a, "a", ttl).await;
    until("A has two votes", || ours.holding("a") == 2).await;
    (a, held, b)
}

/// S36, and S15 in its effect: a node whose clock jumps forgets its votes as well. If this did not show, the harness would
/// be at fault: the algorithm cannot prevent it.
#[tokio::test]
async fn a_node_that_restarts_empty_can_give_its_vote_twice() {
    let ours = Ground::new(3);
    let theirs = Ground::on(Arc::clone(&ours.nodes));
    let (a, held, b) = held_by_a_bare_majority(&ours, &theirs, millis(20_000)).await;
    ours.nodes[1].restart().unwrap();
    let limit = Moment::now().saturating_add(ROOM);
    let second = loop {
        // A connection that was lost with its node may cost a round.
        if let Ok(Some(grant)) = b.try_acquire(&claim("a", millis(30_000))).await {
            break grant;
        }
        assert!(Moment::now() < limit);
    };
    assert!(second.sent_at < held.sent_at.saturating_add(held.ttl), "B came after A's lease, which shows nothing");
    // A finds out when it next asks, and a majority answers.
    ours.proxies[2].accept_connections().unwrap();
    let lost = loop {
        let answer = a.renew(&[Renew::new(&held, held.ttl)]).await.remove(0);
        match answer.expect_err("two nodes are B's").kind() {
            ErrorKind::Unavailable => assert!(Moment::now() < limit),
            kind => break kind,
        }
    };
    assert_eq!(lost, ErrorKind::Lost);
    assert_eq!(b.release(&second).await.unwrap(), Release::Released);
}

/// S38: redis.io's "delayed restart".
#[tokio::test]
async fn a_node_that_stays_out_for_longer_than_the_ttl_cannot() {
    let ours = Ground::new(3);
    let theirs = Ground::on(Arc::clone(&ours.nodes));
    let (_a, held, b) = held_by_a_bare_majority(&ours, &theirs, millis(2_000)).await;
    ours.nodes[1].kill().unwrap();
    let limit = Moment::now().saturating_add(ROOM);
    let mut restarted = false;
    let second = loop {
        if let Ok(Some(grant)) = b.try_acquire(&claim("a", millis(30_000))).await {
            break grant;
        }
        assert!(Moment::now() < limit);
        if !restarted && held.sent_at.saturating_add(held.ttl).remaining().is_zero() {
            ours.nodes[1].restart().unwrap();
            restarted = true;
        }
        tokio::time::sleep(millis(20)).await;
    };
    // Half the drift is room for a clock that counts in whole milliseconds.
    assert!(Moment::now() >= held.sent_at.saturating_add(held.ttl - millis(11)), "B was granted A's lock");
    assert_eq!(b.release(&second).await.unwrap(), Release::Released);
}
