//! The contract of `Backend::release`.

use lock_core::{Release, Result};

use super::Fixture;
use super::ground::{ROOM, another, assert_free, assert_held, hold, hold_shortly, hold_soon, key, take};

/// The holder's lease has ended and another has the lock: the late release says so and changes nothing.
pub(super) async fn anothers_lock_is_left_alone(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let old = hold_shortly(fixture, &*ours, &key("late")).await?;
    let (next, _) = hold_soon(fixture, &*theirs, &old.claim.key, old.ttl + ROOM).await?;
    assert_eq!(ours.release(&old).await?, Release::NotHeld);
    assert_held(fixture, &*ours, &old.claim.key).await?;
    assert_eq!(theirs.release(&next).await?, Release::Released);
    assert_free(fixture, &*ours, &old.claim.key).await
}

/// Unchecked: the late release frees the lock of whoever has it.
pub(super) async fn anothers_lock_is_freed(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let old = hold_shortly(fixture, &*ours, &key("mine")).await?;
    hold_soon(fixture, &*theirs, &old.claim.key, old.ttl + ROOM).await?;
    assert_held(fixture, &*ours, &old.claim.key).await?;
    let _whatever_it_believes = ours.release(&old).await?;
    assert_free(fixture, &*ours, &old.claim.key).await
}

pub(super) async fn the_second_is_not_held(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let grant = hold(fixture, &*client, &key("twice")).await?;
    assert_eq!(client.release(&grant).await?, Release::Released);
    assert_eq!(client.release(&grant).await?, Release::NotHeld);
    assert_free(fixture, &*client, &grant.claim.key).await
}

pub(super) async fn the_second_leaves_the_next_holder_alone(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let old = hold(fixture, &*ours, &key("replay")).await?;
    assert_eq!(ours.release(&old).await?, Release::Released);
    let next = hold(fixture, &*theirs, &old.claim.key).await?;
    assert_eq!(ours.release(&old).await?, Release::NotHeld);
    assert_held(fixture, &*ours, &old.claim.key).await?;
    assert_eq!(theirs.release(&next).await?, Release::Released);
    Ok(())
}

/// Re-entrant: the same release twice ends one hold, and the other stands.
pub(super) async fn one_ends_one_hold(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let outer = hold(fixture, &*ours, &key("holds")).await?;
    let inner = take(&*ours, &another(&outer.claim)).await?;
    assert_eq!(ours.release(&inner).await?, Release::Released);
    assert_eq!(ours.release(&inner).await?, Release::NotHeld);
    assert_held(fixture, &*theirs, &outer.claim.key).await?;
    assert_eq!(ours.release(&outer).await?, Release::Released);
    assert_free(fixture, &*theirs, &outer.claim.key).await
}

/// Re-entrant: ending the inner hold neither lengthens nor shortens what is left to the outer one.
pub(super) async fn an_inner_one_does_not_touch_the_lease(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let outer = hold_shortly(fixture, &*ours, &key("inner")).await?;
    let inner = take(&*ours, &another(&outer.claim)).await?;
    let _ended_in_time_or_not = ours.release(&inner).await?;
    hold_soon(fixture, &*theirs, &outer.claim.key, outer.ttl + ROOM).await?;
    Ok(())
}
