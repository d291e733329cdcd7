//! Renewals: by a majority of all nodes, within the validity, and never at the cost of what still holds.

use lock_core::{Backend, ErrorKind, Grant, Renew, Renewal, Result};
use lock_redlock::Redlock;
use lock_testkit::fault::Direction;

use crate::ground::{Ground, LIMIT, claim, millis, soon, take, until};

async fn renew(redlock: &Redlock, grant: &Grant, ttl: std::time::Duration) -> Result<Renewal> {
    soon(redlock.renew(&[Renew::new(grant, ttl)])).await.remove(0)
}

/// P16, P45.
#[tokio::test]
async fn one_that_misses_its_quorum_deletes_nothing_and_may_be_tried_again() {
    let ground = Ground::new(3);
    let redlock = ground.redlock(LIMIT).await;
    let grant = take(&redlock, "a", millis(60_000)).await;
    until("every node has voted", || ground.holding("a") == 3).await;
    for proxy in &ground.proxies[1..] {
        proxy.black_hole();
    }
    let error = renew(&redlock, &grant, millis(60_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(ground.holding("a"), 3);
    for proxy in &ground.proxies[1..] {
        proxy.heal();
    }
    let renewed = renew(&redlock, &grant, millis(90_000)).await.unwrap();
    assert!(renewed.sent_at > grant.sent_at);
    assert_eq!(ground.holding("a"), 3);
    for node in ground.nodes.iter() {
        until("it is renewed", || node.command::<u64>(&["PTTL", "hasp:a"]).unwrap() > 60_000).await;
    }
}

/// P44: the quorum is of all nodes, not of those that were there at the grant.
#[tokio::test]
async fn two_of_five_are_no_quorum_whoever_was_there_at_the_grant() {
    let ground = Ground::new(5);
    let redlock = ground.redlock(LIMIT).await;
    for node in [3, 4] {
        ground.nodes[node].kill().unwrap();
    }
    let grant = take(&redlock, "a", millis(60_000)).await;
    ground.delete(0, "a");
    let error = renew(&redlock, &grant, millis(60_000)).await.unwrap_err();
    // Nodes 3 and 4 might know better.
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for node in [3, 4] {
        ground.nodes[node].restart().unwrap();
    }
    // They do not. (A call that began while they were away may still fail.)
    let error = loop {
        let error = renew(&redlock, &grant, millis(60_000)).await.unwrap_err();
        if error.kind() != ErrorKind::Unavailable {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    // And what two nodes still hold was left alone.
    assert!(ground.value(1, "a").is_some() && ground.value(2, "a").is_some());
}

#[tokio::test]
async fn a_minority_that_forgot_is_not_given_the_lock_again() {
    let ground = Ground::new(3);
    let redlock = ground.redlock(LIMIT).await;
    let grant = take(&redlock, "a", millis(60_000)).await;
    until("every node has voted", || ground.holding("a") == 3).await;
    ground.delete(2, "a");
    renew(&redlock, &grant, millis(60_000)).await.unwrap();
    assert!(ground.value(2, "a").is_none());
    ground.delete(1, "a");
    assert_eq!(renew(&redlock, &grant, millis(60_000)).await.unwrap_err().kind(), ErrorKind::Lost);
    // The one that still holds it ends with its ttl; a majority is free.
    take(&redlock, "a", millis(60_000)).await;
}

/// S32: the time is looked at again when the answers have come.
#[tokio::test]
async fn one_that_is_answered_after_its_validity_does_not_count() {
    let ground = Ground::new(3);
    let redlock = ground.redlock(LIMIT).await;
    let grant = take(&redlock, "a", millis(60_000)).await;
    for proxy in &ground.proxies {
        proxy.set_delay(Direction::ToClient, millis(130));
    }
    let error = renew(&redlock, &grant, millis(100)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("a majority answered after the lease of 100ms had ended"), "{error}");
    assert_eq!(ground.holding("a"), 3);
}

#[tokio::test]
async fn in_a_batch_each_has_its_own_answer_while_a_node_is_down() {
    let ground = Ground::new(3);
    let redlock = ground.redlock(LIMIT).await;
    let mut grants = Vec::new();
    for name in ["a", "b", "c"] {
        grants.push(take(&redlock, name, millis(60_000)).await);
    }
    until("every node has voted", || ["a", "b", "c"].iter().all(|name| ground.holding(name) == 3)).await;
    ground.nodes[2].stop().unwrap();
    ground.delete(0, "b");
    ground.delete(1, "b");
    let never = Grant::new(claim("d", millis(60_000)), grants[0].sent_at, millis(60_000));
    grants.push(never);
    let batch: Vec<_> = grants.iter().map(|grant| Renew::new(grant, millis(60_000))).collect();
    let answers = soon(redlock.renew(&batch)).await;
    let kinds: Vec<_> = answers.iter().map(|answer| answer.as_ref().err().map(lock_core::Error::kind)).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::Lost), None, Some(ErrorKind::Lost)]);
    ground.nodes[2].cont().unwrap();
}
