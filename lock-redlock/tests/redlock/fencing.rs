//! Fencing tokens: what they survive, and what they do not.

use std::sync::Arc;

use lock_core::{Backend, ErrorKind, Release};
use lock_testkit::fault::Request;

use crate::ground::{Ground, LIMIT, claim, millis, soon, take, until};

/// A token above every clock, so that only what the nodes remember counts.
const BASE: u64 = 1 << 52;

fn set_fences(ground: &Ground, name: &str) {
    for node in ground.nodes.iter() {
        let fence = format!("{BASE} {:032x}", 7);
        node.command::<()>(&["SET", &format!("hasp-redlock-fence:hasp:{name}"), &fence, "PX", "86400000"]).unwrap();
    }
}

/// The requests that put a token down for a lock: those of a claim and a token, where a vote has a round and a label too.
fn minting(name: &str) -> Request {
    let fence = format!("hasp-redlock-fence:hasp:{name}");
    Request::matching(move |arguments| {
        arguments[0] == "EVALSHA" && arguments.len() == 8 && arguments[4] == fence.as_bytes()
    })
}

#[tokio::test]
async fn tokens_grow_when_a_minority_restarts_empty_between_two_grants() {
    for (count, lost) in [(3, 1), (5, 2)] {
        let ground = Ground::new(count);
        let redlock = ground.fenced(LIMIT).await;
        set_fences(&ground, "a");
        let mut last = BASE;
        for round in 0..24 {
            ground.all_vote(&redlock).await;
            let grant = take(&redlock, "a", millis(30_000)).await;
            let token = grant.fencing_token.unwrap().value();
            assert!(token > last, "{token} after {last} in round {round} of {count} nodes");
            last = token;
            until("every node has the token", || {
                ground.nodes.iter().all(|node| {
                    let fence: Option<String> = node.command(&["GET", "hasp-redlock-fence:hasp:a"]).unwrap();
                    fence.is_some_and(|fence| fence.starts_with(&token.to_string()))
                })
            })
            .await;
            assert_eq!(redlock.release(&grant).await.unwrap(), Release::Released);
            until("every node is free", || ground.holding("a") == 0).await;
            for at in 0..lost {
                ground.nodes[(round + at) % count].restart().unwrap();
            }
        }
        // It was the memory of the nodes and not their clocks.
        assert!(last < BASE + 1_000);
    }
}

/// A token that reached a bare majority is known to every majority.
#[tokio::test]
async fn a_token_that_a_bare_majority_has_is_passed_by_any_other() {
    let ground = Ground::new(3);
    let redlock = ground.fenced(LIMIT).await;
    set_fences(&ground, "a");
    let mut last = BASE;
    for round in 0..9 {
        let away = &ground.proxies[round % 3];
        away.refuse_connections();
        away.cut_connections();
        let grant = loop {
            match redlock.try_acquire(&claim("a", millis(30_000))).await {
                Ok(Some(grant)) => break grant,
                Ok(None) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        };
        let token = grant.fencing_token.unwrap().value();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(redlock.release(&grant).await.unwrap(), Release::Released);
        away.accept_connections().unwrap();
    }
}

/// A has its votes and not yet its token when they are forgotten and B comes: A does not get one any more.
#[tokio::test]
async fn whoever_lost_its_votes_before_its_token_was_down_gets_none() {
    let ours = Ground::new(3);
    let theirs = Ground::on(Arc::clone(&ours.nodes));
    let (a, b) = (Arc::new(ours.fenced(millis(2_000)).await), theirs.fenced(millis(2_000)).await);
    set_fences(&ours, "a");
    let held: Vec<_> = ours.proxies.iter().map(|proxy| proxy.when(minting("a")).hold_request()).collect();
    let acquiring = tokio::spawn({
        let a = Arc::clone(&a);
        async move { a.try_acquire(&claim("a", millis(30_000))).await }
    });
    for held in &held {
        soon(held.seen()).await;
    }
    (0..3).for_each(|node| ours.delete(node, "a"));
    let newer = take(&b, "a", millis(30_000)).await;
    assert_eq!(newer.fencing_token.unwrap().value(), BASE + 1);
    drop(held);
    let error = soon(acquiring).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("taken away while its token was put down"), "{error}");
    soon(a.close()).await.unwrap();
    until("only B is left", || (0..3).all(|node| ours.value(node, "a").is_some())).await;
    assert_eq!(b.release(&newer).await.unwrap(), Release::Released);
}

/// S36: nodes that forget what they have granted let two hold at once. The documented weakness must show, and the tokens
/// tell the two apart.
#[tokio::test]
async fn two_holders_at_once_have_tokens_that_grow() {
    let ground = Ground::new(5);
    for _ in 0..10 {
        let redlock = ground.fenced(LIMIT).await;
        set_fences(&ground, "a");
        let older = take(&redlock, "a", millis(30_000)).await;
        until("every node has voted", || ground.holding("a") == 5).await;
        // Nodes 1 to 3 gave A the lock; 4 and 5 have not heard of it; 3 forgets.
        (2..5).for_each(|node| ground.delete(node, "a"));
        let newer = take(&redlock, "a", millis(30_000)).await;
        assert!(newer.fencing_token > older.fencing_token, "{newer:?} after {older:?}");
        let inspection = redlock.inspect(&newer.claim.key).await.unwrap();
        assert_eq!(inspection.fencing_token, newer.fencing_token);
        assert_eq!(redlock.release(&older).await.unwrap(), Release::NotHeld);
        assert_eq!(redlock.release(&newer).await.unwrap(), Release::Released);
        until("no vote is left", || ground.holding("a") == 0).await;
    }
}

#[tokio::test]
async fn a_grant_whose_token_could_not_be_put_down_is_undone() {
    let ground = Ground::new(3);
    let redlock = ground.fenced(LIMIT).await;
    let held: Vec<_> = ground.proxies[1..].iter().map(|proxy| proxy.when(minting("a")).hold_request()).collect();
    let error = redlock.try_acquire(&claim("a", millis(60_000))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    drop(held);
    until("no vote is left", || ground.holding("a") == 0).await;
    soon(redlock.close()).await.unwrap();
    assert_eq!(ground.holding("a"), 0);
}
