//! Fencing tokens, seen at the backend.

use lock_core::{Expiry, Moment, Release, Result};

use super::Fixture;
use super::ground::{ROOM, another, hold, hold_shortly, hold_soon, key, renew, take};

/// Tokens grow over every way in which a lock can change hands, between two clients, and fit into a double.
pub(super) async fn tokens_grow(fixture: &dyn Fixture) -> Result<()> {
    let clients = [fixture.connect().await, fixture.connect().await];
    let key = key("grow");
    let mut tokens = Vec::new();
    for round in 0..100 {
        let client = &clients[round % 2];
        let grant = hold(fixture, &**client, &key).await?;
        tokens.push(grant.fencing_token.expect("every grant of this backend has a token").value());
        match round % 10 {
            7 => assert_eq!(client.force_release(&key).await?, Release::Released),
            8 => drop(client.abandon(&grant.claim).await?),
            _ => assert_eq!(client.release(&grant).await?, Release::Released),
        }
    }
    let expiring = hold_shortly(fixture, &*clients[0], &key).await?;
    tokens.extend(expiring.fencing_token.map(lock_core::FencingToken::value));
    if fixture.guarantees().expiry == Expiry::Session {
        // Its entry lives as long as its session.
        clients[0].close().await?;
    }
    let (next, _) = hold_soon(fixture, &*clients[1], &key, expiring.ttl + ROOM).await?;
    tokens.extend(next.fencing_token.map(lock_core::FencingToken::value));
    assert_eq!(clients[1].release(&next).await?, Release::Released);
    assert_eq!(tokens.len(), 102);
    assert!(tokens.is_sorted_by(|old, new| old < new), "{tokens:?}");
    assert!(tokens[101] < 1 << 53, "a token must be exact as a double");
    Ok(())
}

/// A renewal, and where it is promised a re-entry or a repeat, brings no new token.
pub(super) async fn token_stays_on_re_entry(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let held = hold(fixture, &*client, &key("stay")).await?;
    assert!(renew(&*client, &held, held.ttl).await?.sent_at <= Moment::now());
    if fixture.guarantees().idempotent_acquire {
        assert_eq!(take(&*client, &held.claim).await?.fencing_token, held.fencing_token);
    }
    if fixture.guarantees().reentrant {
        let inner = take(&*client, &another(&held.claim)).await?;
        assert_eq!(inner.fencing_token, held.fencing_token);
        assert_eq!(client.release(&inner).await?, Release::Released);
    }
    if let Some(seen) = client.inspect(&held.claim.key).await?.fencing_token {
        assert_eq!(Some(seen), held.fencing_token);
    }
    assert_eq!(client.release(&held).await?, Release::Released);
    Ok(())
}

pub(super) async fn there_is_no_token(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let held = hold(fixture, &*client, &key("none")).await?;
    assert_eq!(held.fencing_token, None);
    assert_eq!(client.inspect(&held.claim.key).await?.fencing_token, None);
    assert_eq!(client.release(&held).await?, Release::Released);
    Ok(())
}
