//! The contracts of `Backend::inspect`, `list`, `force_release` and `close`.

use std::collections::HashSet;
use std::sync::Arc;

use lock_core::{ErrorKind, LockKey, Release, Result};

use super::Fixture;
use super::ground::{
    ROOM, Waiter, another, assert_free, assert_held, assert_lost, claim, eventually, hold, hold_shortly, key, long,
    nonce, renew, take,
};

/// Held or not, and of the rest what the store knows, which must then be right. Another client looks.
pub(super) async fn it_says_what_the_store_knows(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let claim = claim(fixture, &key("look"), long(fixture)).with_label("host 7, pid 42");
    assert!(!theirs.inspect(&claim.key).await?.held);
    let grant = take(&*ours, &claim).await?;
    let seen = theirs.inspect(&claim.key).await?;
    assert!(seen.held);
    assert!(seen.holder.as_ref().is_none_or(|holder| !holder.is_empty()));
    assert!(seen.label.is_none_or(|label| label == "host 7, pid 42"));
    assert!(seen.fencing_token.is_none_or(|token| Some(token) == grant.fencing_token));
    assert!(seen.remaining.is_none_or(|remaining| !remaining.is_zero() && remaining <= grant.ttl));
    assert!(seen.waiters.is_none_or(|waiters| waiters == 0));
    assert_eq!(ours.release(&grant).await?, Release::Released);
    let seen = theirs.inspect(&claim.key).await?;
    assert!(!seen.held && seen.holder.is_none() && seen.label.is_none(), "{seen:?}");
    assert!(seen.remaining.is_none(), "{seen:?}");
    Ok(())
}

pub(super) async fn it_says_when_a_lease_has_ended(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let held = hold_shortly(fixture, &*client, &key("ended")).await?;
    tokio::time::sleep(held.ttl).await;
    eventually("an ended lease is seen as free", async || {
        client.inspect(&held.claim.key).await.is_ok_and(|seen| !seen.held)
    })
    .await;
    Ok(())
}

pub(super) async fn it_counts_waiters_or_does_not(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold(fixture, &*ours, &key("count")).await?;
    // A waiter may say that it waits before it is counted, and a subscription ends after its wait.
    let counted = async |count| {
        eventually("the number of waiters is right", async || {
            ours.inspect(&held.claim.key).await.is_ok_and(|seen| seen.waiters.is_none_or(|waiters| waiters == count))
        })
        .await;
    };
    counted(0).await;
    let waiter = Waiter::start(theirs, claim(fixture, &held.claim.key, long(fixture))).await;
    counted(1).await;
    waiter.stop();
    assert!(waiter.ended().await?.is_none());
    counted(0).await;
    assert_eq!(ours.release(&held).await?, Release::Released);
    Ok(())
}

/// Names that a pattern language would read as patterns, and neighbours that such a pattern would match.
pub(super) async fn list_is_exact(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let root = nonce();
    for stem in ["*", "?", "[a-z]", "\\", "\\*", "{x}", "a/b", "é", "🔒", ":", "%2F", ""] {
        let prefix = format!("{root}{stem}/");
        let inside = ["1", "2", "*", "{1}", "1/1"].map(|name| format!("{prefix}{name}"));
        let outside = ["b/1", "x/1", "/1", "*/1", "?/1", "/x/1", "é", "1"].map(|name| format!("{root}{name}"));
        let mut held = Vec::new();
        for name in inside.iter().chain(outside.iter().filter(|name| !name.starts_with(&prefix))) {
            held.push(hold(fixture, &*ours, &LockKey::new(name)?).await?);
        }
        let listed = match theirs.list(&prefix).await {
            // The contract's way out; then it must be so at the first call and at every other.
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
            listed => listed?,
        };
        let unique: HashSet<_> = listed.iter().map(LockKey::as_str).collect();
        assert_eq!(unique.len(), listed.len(), "a key is listed twice: {listed:?}");
        assert_eq!(unique, inside.iter().map(String::as_str).collect(), "prefix {prefix}");
        for grant in held {
            assert_eq!(ours.release(&grant).await?, Release::Released);
        }
        assert_eq!(theirs.list(&prefix).await?, []);
    }
    Ok(())
}

pub(super) async fn list_is_complete(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let prefix = nonce();
    let mut held = HashSet::new();
    for place in 0..300 {
        held.insert(hold(fixture, &*client, &LockKey::new(format!("{prefix}{place}"))?).await?.claim.key);
    }
    let listed = match client.list(&prefix).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
        listed => listed?,
    };
    assert_eq!(listed.len(), held.len());
    assert_eq!(listed.into_iter().collect::<HashSet<_>>(), held);
    // An empty prefix lists the whole namespace.
    let all: HashSet<_> = client.list("").await?.into_iter().collect();
    assert!(held.is_subset(&all));
    for key in &held {
        assert_eq!(client.force_release(key).await?, Release::Released);
    }
    Ok(())
}

pub(super) async fn force_frees_whoever_holds(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold(fixture, &*ours, &key("force")).await?;
    assert_eq!(theirs.force_release(&held.claim.key).await?, Release::Released);
    assert_free(fixture, &*theirs, &held.claim.key).await?;
    assert_eq!(theirs.force_release(&held.claim.key).await?, Release::NotHeld);
    Ok(())
}

pub(super) async fn force_is_found_out_at_the_next_renewal(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold(fixture, &*ours, &key("found")).await?;
    assert_eq!(theirs.force_release(&held.claim.key).await?, Release::Released);
    assert_lost(renew(&*ours, &held, held.ttl).await);
    assert_free(fixture, &*theirs, &held.claim.key).await
}

pub(super) async fn force_wakes_a_waiter(fixture: &dyn Fixture) -> Result<()> {
    let clients = [fixture.connect().await, fixture.connect().await, fixture.connect().await];
    let held = hold(fixture, &*clients[0], &key("wake")).await?;
    let waiter = Waiter::start(Arc::clone(&clients[1]), claim(fixture, &held.claim.key, long(fixture))).await;
    assert_eq!(clients[2].force_release(&held.claim.key).await?, Release::Released);
    let grant = waiter.granted().await?;
    assert_eq!(clients[1].release(&grant).await?, Release::Released);
    Ok(())
}

/// Re-entrant: all of the owner's holds end.
pub(super) async fn force_ends_every_hold(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let outer = hold(fixture, &*ours, &key("every")).await?;
    let inner = take(&*ours, &another(&outer.claim)).await?;
    assert_eq!(theirs.force_release(&outer.claim.key).await?, Release::Released);
    let next = hold(fixture, &*theirs, &outer.claim.key).await?;
    for old in [&outer, &inner] {
        assert_lost(renew(&*ours, old, old.ttl).await);
        assert_eq!(ours.release(old).await?, Release::NotHeld);
    }
    assert_eq!(theirs.release(&next).await?, Release::Released);
    Ok(())
}

/// One client ends; the locks of another stand.
pub(super) async fn close_ends(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold(fixture, &*ours, &key("close")).await?;
    let gone = hold(fixture, &*theirs, &key("closed")).await?;
    assert_eq!(theirs.release(&gone).await?, Release::Released);
    tokio::time::timeout(ROOM, theirs.close()).await.expect("close ends in bounded time")?;
    assert_held(fixture, &*ours, &held.claim.key).await?;
    assert_eq!(ours.release(&held).await?, Release::Released);
    Ok(())
}

/// A session store: with the client its session ends, and what was kept by it goes to the next in line.
pub(super) async fn close_frees_what_the_session_kept(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold(fixture, &*ours, &key("session")).await?;
    let waiter = Waiter::start(Arc::clone(&theirs), claim(fixture, &held.claim.key, long(fixture))).await;
    tokio::time::timeout(ROOM, ours.close()).await.expect("close ends in bounded time")?;
    let grant = waiter.granted().await?;
    assert_eq!(theirs.release(&grant).await?, Release::Released);
    assert_free(fixture, &*theirs, &held.claim.key).await
}
