use futures_util::FutureExt;
use lock_testkit::fault::Armed;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::{harmful_ttl, lock_for};
use crate::Failure;
use crate::lab::{Client, Contender, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

/// redis.io, "Distributed Locks with Redis": extended only with "the majority of instances, and within the validity time".
/// redsync counted the successes alone (pull request 71).
pub(super) const EXTEND: Scenario = Scenario {
    id: "S32",
    title: "a minority extends the lock; a majority does, and says so too late",
    steps: &[
        "A, without the driver's care, acquires with a short lease, and extends it with a long ttl",
        "the request reaches two nodes of five; the lease ends on the other three, and B acquires there",
        "on another lock, A extends in time; the replies are held until that has ended as well, and B has it",
        "A acts on an extension that it was told to have",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (
            &[Memory, SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Etcd, ZooKeeper],
            Expected::CannotApply("it asks no majority; S30 holds the one reply"),
        ),
        (
            &[Redlock, RedlockFenced],
            Expected::Holds("an extension needs a majority, and what it is worth counts from its first request"),
        ),
    ],
    play: |stage| extend(stage).boxed(),
};

async fn extend(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    // With connections of their own, so that what is held here does not hinder there.
    let (a2, b2) = (a.client("a2").await?, b.client("b2").await?);
    tokio::try_join!(by_minority(stage, &a, &a, &b), too_late(stage, &a, &a2, &b2))?;
    Ok(())
}

async fn by_minority(stage: &Stage<'_>, proxies: &Contender, a: &Client, b: &Client) -> Result<(), Failure> {
    let (key, renewal) = lock_for(stage, "minority");
    let claim = a.on(&key).claim(stage.short());
    claim.try_acquire().await?;
    let away: Vec<_> = proxies.proxies()[2..].iter().map(|proxy| proxy.when(renewal.clone()).hold_request()).collect();
    claim.renew(harmful_ttl(stage)).await?;
    let other = b.on(&key).acquire(stage.long()).await?;
    away.iter().for_each(Armed::release);
    other.release().await?;
    Ok(())
}

async fn too_late(stage: &Stage<'_>, proxies: &Contender, a: &Client, b: &Client) -> Result<(), Failure> {
    let (key, renewal) = lock_for(stage, "late");
    let claim = a.on(&key).claim(stage.short());
    claim.try_acquire().await?;
    let late: Vec<_> = proxies.proxies().iter().map(|proxy| proxy.when(renewal.clone()).hold_reply()).collect();
    let renewing = claim.renewing(stage.short_ttl())?;
    for reply in &late {
        reply.seen().await;
    }
    let other = b.on(&key).acquire(stage.long()).await?;
    late.iter().for_each(Armed::release);
    renewing.answer().await?;
    other.release().await?;
    Ok(())
}
