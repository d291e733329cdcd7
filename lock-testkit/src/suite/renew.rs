//! The contract of `Backend::renew`.

use std::time::Duration;

use lock_core::{Backend, Grant, Moment, Release, Renew, Renewal, Result};

use super::Fixture;
use super::ground::{
    ROOM, assert_free, assert_held, assert_lost, claim, deadline, hold, hold_shortly, hold_soon, kept, key, long,
    renew, short, steady, take,
};

/// Nobody else gets the lock before the renewal's deadline, and somebody does soon after it.
pub(super) async fn it_restarts_the_ttl(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let ttl = short(fixture);
    let (held, before, renewal) = held_and_renewed(fixture, &*ours, ttl / 2, ttl).await?;
    assert!(renewal.sent_at >= before, "the deadline must count from the renewal's own send");
    assert_eq!(renewal.ttl, held.ttl);
    let (_, at) = hold_soon(fixture, &*theirs, &held.claim.key, held.ttl + ROOM).await?;
    assert!(at >= deadline(renewal.sent_at, renewal.ttl), "granted to another before the renewed deadline");
    Ok(())
}

/// Takes a lock for a short while and renews it after a pause; also when that was. A machine that stalls for a whole lease
/// loses the lock rightly, and begins again.
async fn held_and_renewed(
    fixture: &dyn Fixture,
    client: &dyn Backend,
    pause: Duration,
    ttl: Duration,
) -> Result<(Grant, Moment, Renewal)> {
    loop {
        let held = hold_shortly(fixture, client, &key("renew")).await?;
        tokio::time::sleep(pause).await;
        let before = Moment::now();
        match renew(client, &held, ttl).await {
            Ok(renewal) => return Ok((held, before, renewal)),
            Err(_lost) if Moment::now() >= deadline(held.sent_at, held.ttl) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Expired, and nobody has taken it: the renewal says so, and the lock stays free.
pub(super) async fn expired_is_lost_and_not_made_again(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold_shortly(fixture, &*ours, &key("expired")).await?;
    // Taken and given back by another, so that it has certainly ended.
    let (next, _) = hold_soon(fixture, &*theirs, &held.claim.key, held.ttl + ROOM).await?;
    assert_eq!(theirs.release(&next).await?, Release::Released);
    assert_lost(renew(&*ours, &held, long(fixture)).await);
    assert_free(fixture, &*theirs, &held.claim.key).await
}

/// Expired, and another has taken it: the renewal says so, and does not prolong the other's lease.
pub(super) async fn anothers_lock_is_left_alone(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold_shortly(fixture, &*ours, &key("other")).await?;
    let (next, _) = hold_soon(fixture, &*theirs, &held.claim.key, held.ttl + ROOM).await?;
    assert_eq!(theirs.release(&next).await?, Release::Released);
    let next = hold_shortly(fixture, &*theirs, &held.claim.key).await?;
    assert_lost(renew(&*ours, &held, long(fixture)).await);
    // Sooner than the ttl of the renewal.
    hold_soon(fixture, &*ours, &held.claim.key, next.ttl + ROOM).await?;
    Ok(())
}

/// Unchecked: the renewal of an old grant keeps the next holder's lock alive.
pub(super) async fn anothers_lock_is_prolonged(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold_shortly(fixture, &*ours, &key("blind")).await?;
    let (next, _) = hold_soon(fixture, &*theirs, &held.claim.key, held.ttl + ROOM).await?;
    assert_eq!(theirs.release(&next).await?, Release::Released);
    let next = take(&*theirs, &claim(fixture, &held.claim.key, steady(fixture))).await?;
    renew(&*ours, &held, long(fixture)).await?;
    tokio::time::sleep(next.ttl + Duration::from_millis(200)).await;
    assert_held(fixture, &*theirs, &held.claim.key).await
}

pub(super) async fn ttl_replaces_and_is_never_added(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let ttl = kept(fixture, Duration::from_secs(3));
    let held = take(&*ours, &claim(fixture, &key("replace"), ttl)).await?;
    for _ in 0..100 {
        assert_eq!(renew(&*ours, &held, ttl).await?.ttl, ttl);
    }
    if let Some(remaining) = ours.inspect(&held.claim.key).await?.remaining {
        assert!(remaining <= ttl, "{remaining:?} remain of {ttl:?}");
    }
    hold_soon(fixture, &*theirs, &held.claim.key, ttl + ROOM).await?;
    Ok(())
}

/// The store is never sent less than it has given, but more: the longer ttl counts at once.
pub(super) async fn a_longer_ttl_is_kept(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let longer = kept(fixture, short(fixture) * 3);
    let (held, _, renewal) = held_and_renewed(fixture, &*ours, Duration::ZERO, longer).await?;
    assert_eq!(renewal.ttl, longer);
    let (_, at) = hold_soon(fixture, &*theirs, &held.claim.key, longer + ROOM).await?;
    assert!(at >= deadline(renewal.sent_at, longer), "granted to another before the extended deadline");
    Ok(())
}

/// Each grant is renewed with a ttl of its own, so that a swapped answer shows; the second is lost.
pub(super) async fn one_lost_does_not_fail_the_others(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let mut grants = Vec::new();
    for place in 0..5 {
        grants.push(hold(fixture, &*client, &key(&format!("batch-{place}"))).await?);
    }
    assert_eq!(client.release(&grants[1]).await?, Release::Released);
    let ttls: Vec<_> = (1..=5).map(|place| kept(fixture, long(fixture) + Duration::from_secs(10 * place))).collect();
    let batch: Vec<_> = grants.iter().zip(&ttls).map(|(grant, ttl)| Renew::new(grant, *ttl)).collect();
    let answers = client.renew(&batch).await;
    assert_eq!(answers.len(), grants.len());
    for (place, answer) in answers.into_iter().enumerate() {
        if place == 1 {
            assert_lost(answer);
            assert_free(fixture, &*client, &grants[place].claim.key).await?;
            continue;
        }
        assert_eq!(answer?.ttl, ttls[place], "place {place}");
        if let Some(remaining) = client.inspect(&grants[place].claim.key).await?.remaining {
            assert!(remaining > ttls[place].saturating_sub(Duration::from_secs(9)), "another ttl at place {place}");
        }
        assert_eq!(client.release(&grants[place]).await?, Release::Released);
    }
    Ok(())
}

pub(super) async fn an_empty_batch_has_no_answers(fixture: &dyn Fixture) -> Result<()> {
    assert!(fixture.connect().await.renew(&[]).await.is_empty());
    Ok(())
}

/// One call renews more grants than a client would like to send at once.
pub(super) async fn a_large_batch_is_answered_in_order(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let mut grants = Vec::new();
    for place in 0..300 {
        grants.push(hold(fixture, &*client, &key(&format!("large-{place}"))).await?);
    }
    for lost in [0, 130, 299] {
        assert_eq!(client.release(&grants[lost]).await?, Release::Released);
    }
    let batch: Vec<_> = grants.iter().map(|grant| Renew::new(grant, grant.ttl)).collect();
    let lost: Vec<_> = client.renew(&batch).await.iter().map(Result::is_err).collect();
    let places: Vec<_> = lost.iter().enumerate().filter(|(_, lost)| **lost).map(|(place, _)| place).collect();
    assert_eq!((lost.len(), places), (300, vec![0, 130, 299]));
    for grant in &grants {
        let _gone_or_given_back = client.release(grant).await?;
    }
    Ok(())
}

/// A renewal with a ttl of nothing must not delete the lock.
pub(super) async fn a_ttl_of_zero_is_refused(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let held = hold(fixture, &*client, &key("zero")).await?;
    for ttl in [Duration::ZERO, Duration::MAX] {
        let error = renew(&*client, &held, ttl).await.expect_err("a ttl that the store cannot keep");
        assert_eq!(error.kind(), lock_core::ErrorKind::InvalidInput, "{error}");
    }
    assert_held(fixture, &*client, &held.claim.key).await?;
    assert_eq!(renew(&*client, &held, held.ttl).await?.ttl, held.ttl);
    assert_eq!(client.release(&held).await?, Release::Released);
    Ok(())
}
