//! Giving back: on all nodes, and what stays where a node could not be told.

use lock_core::{Backend, Moment, Release};

use crate::ground::{Ground, LIMIT, ROOM, claim, millis, soon, take, timed, until};

/// S25: the key of a node that was cut off at the release stays until its ttl, and costs others one vote.
#[tokio::test]
async fn the_residue_of_a_node_that_was_cut_off_ends_with_its_ttl() {
    let ground = Ground::new(5);
    let redlock = ground.redlock(LIMIT).await;
    let ttl = millis(6_000);
    let grant = take(&redlock, "a", ttl).await;
    until("every node has voted", || ground.holding("a") == 5).await;
    ground.proxies[4].refuse_connections();
    ground.proxies[4].cut_connections();
    let (answer, took) = timed(redlock.release(&grant)).await;
    assert_eq!(answer.unwrap(), Release::Released);
    assert!(took < LIMIT, "{took:?}");
    until("the others are free", || ground.holding("a") == 1).await;
    assert!(ground.value(4, "a").is_some());
    ground.proxies[4].accept_connections().unwrap();

    // Four votes are enough, and the residue is not taken for a lock.
    assert!(!redlock.inspect(&grant.claim.key).await.unwrap().held);
    let next = take(&redlock, "a", millis(60_000)).await;
    assert_eq!(redlock.release(&next).await.unwrap(), Release::Released);
    until("it ends by itself", || ground.holding("a") == 0).await;
    assert!(grant.sent_at.saturating_add(ttl) <= Moment::now().saturating_add(millis(5)), "it ended before its ttl");
}

/// S25: with a residue on so many nodes that no majority is free, the lock is stuck, for a ttl and no longer.
#[tokio::test]
async fn residues_on_half_the_nodes_block_for_no_longer_than_their_ttl() {
    let ground = Ground::new(3);
    let redlock = ground.redlock(LIMIT).await;
    let ttl = millis(5_000);
    let grant = take(&redlock, "a", ttl).await;
    until("every node has voted", || ground.holding("a") == 3).await;
    for proxy in &ground.proxies[1..] {
        proxy.refuse_connections();
        proxy.cut_connections();
    }
    // Nobody can know whether it was still ours.
    assert!(soon(redlock.release(&grant)).await.is_err());
    for proxy in &ground.proxies[1..] {
        proxy.accept_connections().unwrap();
    }
    let next = claim("a", millis(60_000));
    let limit = Moment::now().saturating_add(ROOM);
    loop {
        assert!(Moment::now() < limit);
        if let Ok(Some(_)) = redlock.try_acquire(&next).await {
            break;
        }
        tokio::time::sleep(millis(10)).await;
    }
    assert!(
        grant.sent_at.saturating_add(ttl) <= Moment::now().saturating_add(millis(5)),
        "granted before the ttl ended"
    );
}

#[tokio::test]
async fn what_was_lost_on_a_majority_is_not_held() {
    let ground = Ground::new(3);
    let redlock = ground.redlock(LIMIT).await;
    let grant = take(&redlock, "a", millis(60_000)).await;
    until("every node has voted", || ground.holding("a") == 3).await;
    ground.delete(0, "a");
    ground.delete(2, "a");
    assert_eq!(redlock.release(&grant).await.unwrap(), Release::NotHeld);
    until("the rest is gone as well", || ground.holding("a") == 0).await;
}
