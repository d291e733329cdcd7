//! The contract of `Backend::abandon`.

use std::sync::Arc;

use lock_core::{Release, Result};

use super::Fixture;
use super::ground::{Waiter, another, assert_free, assert_held, claim, hold, key, long, take};

pub(super) async fn what_the_claim_holds_is_free(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold(fixture, &*ours, &key("abandon")).await?;
    ours.abandon(&held.claim).await?;
    assert_free(fixture, &*theirs, &held.claim.key).await?;
    assert_eq!(ours.release(&held).await?, Release::NotHeld);
    Ok(())
}

/// The reply of the acquire was lost, so another object, knowing nothing but the claim, must undo it.
pub(super) async fn it_needs_only_the_claim(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold(fixture, &*ours, &key("unknown")).await?;
    let _may_still_land_or_not = theirs.abandon(&held.claim).await?;
    assert_free(fixture, &*theirs, &held.claim.key).await
}

/// Neither a claim that was refused nor one that never tried takes anything from the holder.
pub(super) async fn what_others_hold_is_left_alone(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold(fixture, &*ours, &key("others")).await?;
    let refused = claim(fixture, &held.claim.key, long(fixture));
    assert!(theirs.try_acquire(&refused).await?.is_none());
    theirs.abandon(&refused).await?;
    theirs.abandon(&claim(fixture, &held.claim.key, long(fixture))).await?;
    assert_held(fixture, &*theirs, &held.claim.key).await?;
    assert_eq!(ours.release(&held).await?, Release::Released);
    Ok(())
}

pub(super) async fn a_claim_that_left_nothing_is_no_error(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let unknown = claim(fixture, &key("nothing"), long(fixture));
    client.abandon(&unknown).await?;
    assert_free(fixture, &*client, &unknown.key).await
}

/// The last repeat comes after another has taken the lock.
pub(super) async fn it_may_be_repeated(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold(fixture, &*ours, &key("repeat")).await?;
    ours.abandon(&held.claim).await?;
    ours.abandon(&held.claim).await?;
    let next = hold(fixture, &*theirs, &held.claim.key).await?;
    ours.abandon(&held.claim).await?;
    assert_held(fixture, &*ours, &held.claim.key).await?;
    assert_eq!(theirs.release(&next).await?, Release::Released);
    Ok(())
}

/// Re-entrant: of two claims of one owner only the abandoned one ends.
pub(super) async fn the_owners_other_claim_stands(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let outer = hold(fixture, &*ours, &key("claims")).await?;
    let inner = take(&*ours, &another(&outer.claim)).await?;
    ours.abandon(&inner.claim).await?;
    ours.abandon(&inner.claim).await?;
    assert_held(fixture, &*theirs, &outer.claim.key).await?;
    assert_eq!(ours.release(&outer).await?, Release::Released);
    assert_free(fixture, &*theirs, &outer.claim.key).await
}

pub(super) async fn a_waiter_gets_what_was_abandoned(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold(fixture, &*ours, &key("heir")).await?;
    let waiter = Waiter::start(Arc::clone(&theirs), claim(fixture, &held.claim.key, long(fixture))).await;
    ours.abandon(&held.claim).await?;
    let grant = waiter.granted().await?;
    assert_eq!(theirs.release(&grant).await?, Release::Released);
    Ok(())
}
