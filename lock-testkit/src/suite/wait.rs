//! The contract of `Backend::acquire`.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Backend, Moment, Release, Result, Stop};

use super::Fixture;
use super::ground::{ROOM, Waiter, assert_free, assert_held, claim, deadline, hold, hold_shortly, key, long, short};

pub(super) async fn free_is_granted_at_once(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let (claim, stop) = (claim(fixture, &key("wait-free"), long(fixture)), Stop::new());
    let before = Moment::now();
    let grant = client.acquire(&claim, &stop).await?.expect("nobody has fired the stop");
    assert!((before..=Moment::now()).contains(&grant.sent_at), "{grant:?} was not sent during the call");
    assert!(!stop.is_waiting(), "it reported waiting for a free lock");
    assert_held(fixture, &*client, &claim.key).await?;
    assert_eq!(client.release(&grant).await?, Release::Released);
    Ok(())
}

/// The first waiter gives up; the second must get the lock, so nothing of the first stands before it.
pub(super) async fn stop_gives_up_the_place(fixture: &dyn Fixture) -> Result<()> {
    let clients = [fixture.connect().await, fixture.connect().await, fixture.connect().await];
    let held = hold(fixture, &*clients[0], &key("stop")).await?;
    let wait = || claim(fixture, &held.claim.key, long(fixture));
    let first = Waiter::start(Arc::clone(&clients[1]), wait()).await;
    let second = Waiter::start(Arc::clone(&clients[2]), wait()).await;
    first.stop();
    assert!(first.ended().await?.is_none(), "a lock that is held by another was granted");
    assert_eq!(clients[0].release(&held).await?, Release::Released);
    let grant = second.granted().await?;
    assert_eq!(clients[2].release(&grant).await?, Release::Released);
    assert_free(fixture, &*clients[0], &held.claim.key).await
}

pub(super) async fn stop_before_the_wait_ends_it(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let held = hold(fixture, &*client, &key("stopped")).await?;
    let stop = Stop::new();
    stop.fire();
    let wait = claim(fixture, &held.claim.key, long(fixture));
    let ended = tokio::time::timeout(ROOM, client.acquire(&wait, &stop)).await.expect("a stopped wait ends");
    assert!(ended?.is_none(), "a lock that is held by another was granted");
    assert_eq!(client.release(&held).await?, Release::Released);
    assert_free(fixture, &*client, &held.claim.key).await
}

/// Release and stop race, at shifting distances. Either the wait brings a grant that holds, or nothing is left.
pub(super) async fn a_grant_on_its_way_is_returned(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let key = key("race");
    for round in 0..16 {
        let held = hold(fixture, &*ours, &key).await?;
        let waiter = Waiter::start(Arc::clone(&theirs), claim(fixture, &key, long(fixture))).await;
        let stopping = async {
            for _ in 0..round * 20 {
                tokio::task::yield_now().await;
            }
            waiter.stop();
        };
        let (released, ()) = tokio::join!(ours.release(&held), stopping);
        assert_eq!(released?, Release::Released);
        if let Some(grant) = waiter.ended().await? {
            assert_held(fixture, &*ours, &key).await?;
            assert_eq!(theirs.release(&grant).await?, Release::Released);
        }
        assert_free(fixture, &*ours, &key).await?;
    }
    Ok(())
}

/// The holder never renews and never says goodbye.
pub(super) async fn end_of_the_lease_is_noticed(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold_shortly(fixture, &*ours, &key("vanish")).await?;
    let wait = claim(fixture, &held.claim.key, long(fixture));
    let grant = tokio::time::timeout(held.ttl + ROOM, theirs.acquire(&wait, &Stop::new())).await;
    let grant = grant.expect("the lease ends and the wait with it")?.expect("nobody has fired the stop");
    assert!(Moment::now() >= deadline(held.sent_at, held.ttl), "granted before the holder's deadline");
    assert!(grant.sent_at.saturating_add(grant.ttl) > Moment::now(), "the grant has ended before it came");
    assert_held(fixture, &*ours, &held.claim.key).await
}

pub(super) async fn waiting_is_reported(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let held = hold(fixture, &*ours, &key("waiting")).await?;
    // `start` returns when it is reported; from then on the wait goes on, for longer than a driver's patience with a fault.
    let waiter = Waiter::start(theirs, claim(fixture, &held.claim.key, long(fixture))).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiter.is_finished(), "a wait has ended although the lock is held");
    waiter.stop();
    assert!(waiter.ended().await?.is_none());
    assert_eq!(ours.release(&held).await?, Release::Released);
    Ok(())
}

/// Several waiters share a client, and so its connections and subscriptions.
pub(super) async fn every_waiter_is_served(fixture: &dyn Fixture) -> Result<()> {
    let clients = [fixture.connect().await, fixture.connect().await];
    let key = key("served");
    let held = hold(fixture, &*clients[0], &key).await?;
    let mut waits = tokio::task::JoinSet::new();
    for place in 0..6 {
        let client = Arc::clone(&clients[place % 2]);
        let waiter = Waiter::start(Arc::clone(&client), claim(fixture, &key, long(fixture))).await;
        waits.spawn(async move {
            let grant = waiter.granted().await?;
            client.release(&grant).await
        });
    }
    assert_eq!(clients[0].release(&held).await?, Release::Released);
    while let Some(served) = waits.join_next().await {
        assert_eq!(served.expect("a waiter does not panic")?, Release::Released);
    }
    assert_free(fixture, &*clients[0], &key).await
}

/// Fair: first come, first served, each from a client of its own.
pub(super) async fn waiters_are_served_in_order(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let key = key("order");
    let mut held = hold(fixture, &*client, &key).await?;
    let mut waiters = Vec::new();
    for _ in 0..5 {
        waiters.push(Waiter::start(fixture.connect().await, claim(fixture, &key, long(fixture))).await);
    }
    for (place, next) in waiters.into_iter().enumerate() {
        let expected = next.claim.id;
        assert_eq!(client.release(&held).await?, Release::Released);
        held = next.granted().await?;
        assert_eq!(held.claim.id, expected, "place {place}");
    }
    assert_eq!(client.release(&held).await?, Release::Released);
    Ok(())
}

/// Fair: whoever tries at the moment of a hand-over does not get in before the one who waits.
pub(super) async fn a_try_does_not_overtake(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let key = key("overtake");
    for _ in 0..8 {
        let held = hold(fixture, &*ours, &key).await?;
        let waiter = Waiter::start(Arc::clone(&theirs), claim(fixture, &key, long(fixture))).await;
        assert_eq!(ours.release(&held).await?, Release::Released);
        assert_held(fixture, &*ours, &key).await?;
        let grant = waiter.granted().await?;
        assert_eq!(theirs.release(&grant).await?, Release::Released);
    }
    Ok(())
}

/// A waiter that nobody tells would sleep its floor, three quarters of 800 ms at least; the quickest of five must beat it.
pub(super) async fn a_release_is_told(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs) = (fixture.connect().await, fixture.connect().await);
    let key = key("told");
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let held = hold(fixture, &*ours, &key).await?;
        let waiter = Waiter::start(Arc::clone(&theirs), claim(fixture, &key, long(fixture))).await;
        // It reports before it subscribes; this is time for the subscription.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let released = Moment::now();
        assert_eq!(ours.release(&held).await?, Release::Released);
        let grant = waiter.granted().await?;
        quickest = quickest.min(Moment::now().saturating_duration_since(released));
        assert_eq!(theirs.release(&grant).await?, Release::Released);
    }
    assert!(quickest < Duration::from_millis(400), "the quickest of five hand-overs took {quickest:?}");
    Ok(())
}

pub(super) async fn a_release_lets_the_waiter_in(fixture: &dyn Fixture) -> Result<()> {
    let (ours, theirs): (Arc<dyn Backend>, _) = (fixture.connect().await, fixture.connect().await);
    let held = hold(fixture, &*ours, &key("release")).await?;
    let waiter = Waiter::start(Arc::clone(&theirs), claim(fixture, &held.claim.key, short(fixture))).await;
    assert_eq!(ours.release(&held).await?, Release::Released);
    let grant = waiter.granted().await?;
    assert!(grant.sent_at > held.sent_at);
    Ok(())
}
