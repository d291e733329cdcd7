use std::time::Duration;

use futures_util::FutureExt;
use lock_core::Lease;
use lock_testkit::fault::Armed;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::lock_for;
use crate::Failure;
use crate::lab::{Answer, Client, Contender, PATIENCE, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

/// Every strategy can grant it, and replies can be late within it.
const TTL: Duration = Duration::from_secs(1);

pub(super) const LATE_REPLY: Scenario = Scenario {
    id: "S30",
    title: "a renewal's reply is late, or the renewal is lost: until when may the holder act?",
    steps: &[
        "A acquires with a fixed lease of a second, and asks for a second more; the store does it, the reply is held",
        "a third of the lease later the reply arrives: the new deadline counts from the request",
        "B waits, and has the lock when the store's entry ends; by then A's deadline must have passed",
        "on another lock, A asks for a second more, and the request is lost with its connection: the old deadline stands",
        "B has that lock when the first lease ends, and A acts as its guard lets it",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("a call of a function has no reply that could be late or lost")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced, Etcd, ZooKeeper],
            Expected::Holds("a deadline moves only when the reply is here, and counts from just before its request"),
        ),
    ],
    play: |stage| late_or_lost(stage).boxed(),
};

async fn late_or_lost(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.frail("a").await?, stage.contender("b").await?);
    // With connections of their own, so that what is held or cut here does not hinder there.
    let (a2, b2) = (a.client("a2").await?, b.client("b2").await?);
    tokio::try_join!(late(stage, &a, &a, &b), lost(stage, &a, &a2, &b2))?;
    Ok(())
}

async fn late(stage: &Stage<'_>, proxies: &Contender, a: &Client, b: &Client) -> Result<(), Failure> {
    let (key, renewal) = lock_for(stage, "late");
    let (a, b) = (a.on(&key), b.on(&key));
    let held = a.acquire(Lease::fixed(TTL)).await?;
    let replies: Vec<_> = proxies.proxies().iter().map(|proxy| proxy.when(renewal.clone()).hold_reply()).collect();
    let extending = held.extending(TTL)?;
    for reply in &replies {
        reply.seen().await;
    }
    let waiting = b.acquiring(stage.long(), PATIENCE)?;
    while held.remaining().await?.is_some_and(|remaining| remaining > TTL * 2 / 3) {
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    replies.iter().for_each(Armed::release);
    match extending.answer().await? {
        Answer::Renewed { .. } => {}
        answer => return Err(format!("the reply came too late to count: {answer:?}").into()),
    }
    let other = waiting.held().await?;
    held.is_held().await?;
    other.release().await?;
    Ok(())
}

async fn lost(stage: &Stage<'_>, proxies: &Contender, a: &Client, b: &Client) -> Result<(), Failure> {
    let (key, renewal) = lock_for(stage, "lost");
    let (a, b) = (a.on(&key), b.on(&key));
    let held = a.acquire(Lease::fixed(TTL)).await?;
    let requests: Vec<_> = proxies.proxies().iter().map(|proxy| proxy.when(renewal.clone()).cut()).collect();
    let extending = held.extending(TTL)?;
    for request in &requests {
        request.seen().await;
    }
    extending.answer().await?;
    let other = b.acquire(stage.long()).await?;
    held.is_held().await?;
    other.release().await?;
    Ok(())
}
