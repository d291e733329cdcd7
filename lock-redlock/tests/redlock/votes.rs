//! Votes that are split, late, cancelled, or worth nothing any more.

use std::sync::Arc;

use lock_core::{Backend, Effect, ErrorKind, Lease, Release, Stop};
use lock_testkit::fault::{Direction, Request};

use crate::ground::{Ground, LIMIT, about, claim, locks, millis, soon, take, timed, until};

/// S44: each of two contenders gets one half of an even number of nodes.
#[tokio::test]
async fn split_votes_of_an_even_number_resolve() {
    for count in [2, 4] {
        let ours = Ground::new(count);
        let theirs = Ground::on(Arc::clone(&ours.nodes));
        let limit = millis(2_000);
        let clients = [ours.redlock(limit).await, theirs.redlock(limit).await];
        let half = count / 2;
        let held: Vec<_> = (0..count)
            .map(|node| if node < half { &theirs.proxies[node] } else { &ours.proxies[node] })
            .map(|proxy| proxy.when(about("a")).hold_request())
            .collect();
        let contenders: Vec<_> = clients
            .into_iter()
            .map(|client| {
                let lock = locks(client, Lease::fixed(millis(30_000))).lock("a").unwrap();
                tokio::spawn(async move {
                    let guard = lock.acquire().await.unwrap();
                    assert!(guard.is_held());
                    guard.release().await.unwrap()
                })
            })
            .collect();
        until("every node has voted", || ours.holding("a") == count).await;
        let claims: Vec<_> = (0..count).map(|node| ours.value(node, "a").unwrap()[..32].to_owned()).collect();
        assert!(claims[..half].iter().all(|claim| *claim == claims[0]), "{claims:?}");
        assert!(claims[half..].iter().all(|claim| *claim == claims[half] && *claim != claims[0]), "{claims:?}");
        held.iter().for_each(lock_testkit::fault::Armed::release);
        for contender in contenders {
            assert_eq!(soon(contender).await.unwrap(), Release::Released);
        }
        until("no vote is left", || ours.holding("a") == 0).await;
    }
}

/// S44: three contenders of five nodes take two, two and one.
#[tokio::test]
async fn contenders_who_all_ask_at_once_are_all_served() {
    let ground = Ground::new(5);
    let mut contenders = Vec::new();
    for _ in 0..6 {
        let lock = locks(ground.redlock(LIMIT).await, Lease::fixed(millis(30_000))).lock("a").unwrap();
        contenders.push(tokio::spawn(async move { lock.acquire().await?.release().await }));
    }
    for contender in contenders {
        assert_eq!(soon(contender).await.unwrap().unwrap(), Release::Released);
    }
}

/// S45: A reaches nodes 1 to 3, B reaches nodes 3 to 5.
#[tokio::test]
async fn the_node_that_two_partitions_share_decides() {
    let ours = Ground::new(5);
    let theirs = Ground::on(Arc::clone(&ours.nodes));
    let (a, b) = (ours.redlock(LIMIT).await, theirs.redlock(LIMIT).await);
    for (ground, nodes) in [(&ours, [3, 4]), (&theirs, [0, 1])] {
        for proxy in nodes.map(|node| &ground.proxies[node]) {
            proxy.refuse_connections();
            proxy.cut_connections();
        }
    }
    let held = take(&a, "a", millis(30_000)).await;
    let (answer, took) = timed(b.try_acquire(&claim("a", millis(30_000)))).await;
    // A majority answered: that is contention, not an outage.
    assert!(answer.unwrap().is_none());
    assert!(took < LIMIT, "{took:?}");
    until("B's votes are undone", || ours.holding("a") == 3).await;
    assert_eq!(a.release(&held).await.unwrap(), Release::Released);
    take(&b, "a", millis(30_000)).await;
}

/// S49: the future is dropped when two of five nodes have voted.
#[tokio::test]
async fn cancelled_after_two_of_five_it_leaves_no_key() {
    let ground = Ground::new(5);
    let locks = locks(ground.redlock(LIMIT).await, Lease::fixed(millis(60_000)));
    // Until after the verdict, or only until the cancellation: the late votes meet a round that is lost, or one that is won
    // for nobody.
    for late in [true, false] {
        let held: Vec<_> = (2..5).map(|node| ground.proxies[node].when(about("a")).hold_request()).collect();
        let lock = locks.lock("a").unwrap();
        let acquiring = tokio::spawn(async move { lock.acquire().await.map(drop) });
        until("two nodes have voted", || ground.holding("a") == 2).await;
        for held in &held {
            soon(held.seen()).await;
        }
        acquiring.abort();
        assert!(acquiring.await.unwrap_err().is_cancelled());
        if late {
            until("the first votes are undone", || ground.holding("a") == 0).await;
        }
        drop(held);
        // Whatever was held has arrived when what was sent after it is answered.
        let other = soon(locks.lock("other").unwrap().acquire()).await.unwrap();
        until("the nodes have answered again", || ground.holding("other") == 5).await;
        assert_eq!(other.release().await.unwrap(), Release::Released);
        until("no vote is left", || ground.holding("a") == 0).await;
    }
    soon(locks.shutdown()).await.unwrap();
    assert_eq!(ground.holding("a"), 0);
}

#[tokio::test]
async fn the_late_votes_of_a_lost_round_are_undone_and_those_of_a_won_one_count() {
    let ground = Ground::new(3);
    let redlock = ground.redlock(LIMIT).await;

    // One vote of three, then two more after the verdict.
    let held = [1, 2].map(|node| ground.proxies[node].when(about("lost")).hold_request());
    let error = redlock.try_acquire(&claim("lost", millis(60_000))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
    assert!(error.to_string().contains("1 of 3 nodes answered and 2 are needed: 0 failed, 2 silent"), "{error}");
    until("the first vote is undone", || ground.holding("lost") == 0).await;
    let undone_before = ground.proxies[1].count("EVALSHA");
    drop(held);
    until("the late vote is undone", || ground.proxies[1].count("EVALSHA") > undone_before).await;
    soon(redlock.close()).await.unwrap();
    assert_eq!(ground.holding("lost"), 0);

    // Two votes of three, then the third.
    let held = ground.proxies[2].when(about("won")).hold_request();
    let grant = take(&redlock, "won", millis(60_000)).await;
    assert_eq!(ground.holding("won"), 2);
    held.release();
    until("the late vote counts", || ground.holding("won") == 3).await;
    soon(redlock.close()).await.unwrap();
    assert_eq!(ground.holding("won"), 3);
    assert_eq!(redlock.release(&grant).await.unwrap(), Release::Released);
    until("all votes are given back", || ground.holding("won") == 0).await;
}

/// The undoing of a round is held up in the network until the same claim has won another round over a new connection.
#[tokio::test]
async fn a_late_undoing_leaves_the_votes_of_the_next_round_alone() {
    let ground = Ground::new(3);
    let redlock = ground.redlock(LIMIT).await;
    let claim = claim("a", millis(60_000));
    for node in [0, 2] {
        ground.nodes[node].command::<()>(&["SET", "hasp:a", "another's"]).unwrap();
    }
    // A release has a claim and a round; a vote has a ttl and a label too.
    let undoing = Request::matching(|arguments| arguments[0] == "EVALSHA" && arguments.len() == 6);
    let held = ground.proxies[1].when(undoing).hold_request();
    assert!(redlock.try_acquire(&claim).await.unwrap().is_none());
    soon(held.seen()).await;
    // The connection that answers nothing is given up.
    soon(redlock.close()).await.unwrap();
    assert_eq!(ground.value(1, "a"), Some(format!("{:032x}:2", claim.id.bits())));

    for node in [0, 2] {
        ground.delete(node, "a");
    }
    let _silent = ground.proxies[2].when(about("a")).hold_request();
    let grant = redlock.try_acquire(&claim).await.unwrap().expect("two of three are free, or its own");
    held.release();
    tokio::time::sleep(millis(200)).await;
    assert_eq!(ground.holding("a"), 2, "a vote of the round that was won is gone");
    assert_eq!(redlock.release(&grant).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn closing_waits_for_what_is_still_to_be_undone() {
    let ground = Ground::new(3);
    let redlock = Arc::new(ground.redlock(millis(100)).await);
    let held = [1, 2].map(|node| ground.proxies[node].when(about("a")).hold_request());
    assert!(redlock.try_acquire(&claim("a", millis(60_000))).await.is_err());
    let closing = tokio::spawn({
        let redlock = Arc::clone(&redlock);
        async move { redlock.close().await }
    });
    tokio::time::sleep(millis(50)).await;
    assert!(!closing.is_finished());
    drop(held);
    soon(closing).await.unwrap().unwrap();
    assert_eq!(ground.holding("a"), 0);
}

#[tokio::test]
async fn a_vote_that_comes_after_its_release_is_undone() {
    let ground = Ground::new(3);
    let redlock = ground.redlock(LIMIT).await;
    let reply = ground.proxies[2].when(about("a")).hold_reply();
    let grant = take(&redlock, "a", millis(60_000)).await;
    soon(reply.seen()).await;
    assert_eq!(ground.holding("a"), 3);
    // The release of node 2 goes the same way and is applied; an admin plays a release that was overtaken.
    assert_eq!(redlock.release(&grant).await.unwrap(), Release::Released);
    until("it is released everywhere", || ground.holding("a") == 0).await;
    let value = format!("{:032x}:1", grant.claim.id.bits());
    ground.nodes[2].command::<()>(&["SET", "hasp:a", &value, "PX", "60000"]).unwrap();
    reply.release();
    until("the late vote is undone", || ground.holding("a") == 0).await;
}

/// P47: what a majority gives after the lease has run out is not a lock.
#[tokio::test]
async fn a_validity_of_nothing_is_never_returned() {
    let ground = Ground::new(3);
    let redlock = ground.redlock(LIMIT).await;
    for proxy in &ground.proxies {
        proxy.set_delay(Direction::ToClient, millis(130));
    }
    for _ in 0..3 {
        let error = redlock.try_acquire(&claim("a", millis(100))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
        assert!(error.to_string().contains("a majority answered after the lease of 100ms had ended"), "{error}");
    }
    // The same delay under a longer lease only shortens what is left of it.
    let guard = soon(locks(redlock, Lease::fixed(millis(5_000))).lock("a").unwrap().acquire()).await.unwrap();
    assert!(guard.remaining() <= millis(5_000 - 52 - 130), "{:?}", guard.remaining());
}

#[tokio::test]
async fn a_stopped_wait_returns_the_grant_that_was_on_its_way() {
    let ground = Ground::new(3);
    let redlock = Arc::new(ground.redlock(millis(2_000)).await);
    let held: Vec<_> = ground.proxies.iter().map(|proxy| proxy.when(about("a")).hold_reply()).collect();
    let stop = Stop::new();
    let wait = tokio::spawn({
        let (redlock, stop) = (Arc::clone(&redlock), stop.clone());
        async move { redlock.acquire(&claim("a", millis(30_000)), &stop).await }
    });
    for held in &held {
        soon(held.seen()).await;
    }
    stop.fire();
    drop(held);
    let grant = soon(wait).await.unwrap().unwrap().expect("it was granted before the stop was heard");
    assert_eq!(redlock.release(&grant).await.unwrap(), Release::Released);
}
