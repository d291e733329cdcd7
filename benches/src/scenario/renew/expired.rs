//! A renewal comes when the lock is no longer its holder's.

use std::time::Duration;

use futures_util::FutureExt;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::{harmful_ttl, lock_for};
use crate::lab::{Answer, Client, Contender, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};
use crate::{Failure, Store};

pub(super) const ANOTHERS: Scenario = Scenario {
    id: "S29",
    title: "the lock is another's when the renewal comes",
    steps: &[
        "A, without the driver's care, acquires with a short lease, and is stopped",
        "the lease ends; B acquires with a short lease, and never gives it back",
        "A goes on, and renews with a long ttl",
        "B's lease ends: a fresh client must get the lock",
    ],
    breaks_by: &[Observable::Stuck, Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (
            &[SetnxExpire, BlindDelete],
            Expected::Breaks(
                "the renewal asks nobody whose lock it prolongs: A keeps B's alive, and is told that it holds",
            ),
        ),
        (&[GetSet], Expected::Breaks("the renewal writes A's stamp over B's")),
        (
            &[Memory, Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::Holds("the renewal compares the owner in the same step"),
        ),
        (
            &[Etcd, ZooKeeper],
            Expected::Holds("the renewal is of A's own lease or session, which B's entry is not under"),
        ),
    ],
    play: |stage| anothers(stage).boxed(),
};

async fn anothers(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = stage.frail("a").await?;
    let (b, prober) = (stage.beside(&a, "b").await?, stage.beside(&a, "prober").await?);
    let claim = a.claim(stage.short());
    claim.try_acquire().await?;
    while_paused(stage, &a, async || b.acquire(stage.short()).await).await?;
    claim.renew(harmful_ttl(stage)).await?;
    prober.probe(stage.short(), soon_after(stage)).await
}

/// etcd's server said "alive" of a lease that was revoked, up to 3.4.37, 3.5.22 and 3.6.4 (#20615).
pub(super) const EXPIRED: Scenario = Scenario {
    id: "S31",
    title: "the lock is gone when the renewal comes",
    steps: &[
        "A acquires with a lease that is renewed; an administrator removes the entry",
        "A must hear of it by a renewal; B acquires, and A acts as its guard lets it",
        "A, without the driver's care, acquires with a short lease, and is stopped; the lease ends",
        "A goes on, and renews with a long ttl; that must not make the entry again, nor say that it is there",
        "B tries to acquire; then A is killed, and a fresh client must get the lock",
    ],
    breaks_by: &[Observable::Stuck, Observable::InLeaseOverlap, Observable::UnjustifiedBusy],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[SetnxExpire, BlindDelete], Expected::Holds("EXPIRE and PEXPIRE answer 0 for a key that is gone: `Lost`")),
        (
            &[GetSet],
            Expected::Breaks(
                "what has ended stays in Redis, and the renewal puts a new stamp on it; only the driver knows better",
            ),
        ),
        (
            &[Memory, Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::Holds("an entry that is gone is not the owner's: `Lost`"),
        ),
        (&[Etcd], Expected::Holds("after the keep-alive it looks at the key itself: `Lost`")),
        (&[ZooKeeper], Expected::Holds("it looks at its own node, by its czxid: `Lost`")),
    ],
    play: |stage| expired(stage).boxed(),
};

async fn expired(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = stage.frail("a").await?;
    let (b, prober) = (stage.beside(&a, "b").await?, stage.beside(&a, "prober").await?);
    removed(stage, &a, &b).await?;

    let claim = a.claim(stage.short());
    claim.try_acquire().await?;
    while_paused(stage, &a, async || b.free().await).await?;
    claim.renew(harmful_ttl(stage)).await?;
    if let Some(other) = b.try_acquire(stage.short()).await? {
        other.release().await?;
    }
    if stage.kind() != Memory {
        a.kill()?;
    }
    prober.probe(stage.short(), soon_after(stage)).await
}

/// The entry goes while A holds.
async fn removed(stage: &Stage<'_>, a: &Contender, b: &Client) -> Result<(), Failure> {
    let (key, _) = lock_for(stage, "removed");
    let (a, b) = (a.on(&key), b.on(&key));
    let held = a.acquire(stage.renewed()).await?;
    match b.force_release().await? {
        Answer::Released => {}
        answer => return Err(format!("an administrator removes the entry, and the answer is {answer:?}").into()),
    }
    // A guard that never says so is found out below.
    if let Ok(lost) = tokio::time::timeout(stage.short_ttl() * 3, held.lost()).await {
        lost?;
    }
    let other = b.acquire(stage.long()).await?;
    held.is_held().await?;
    other.release().await?;
    Ok(())
}

/// A is stopped meanwhile, so that its session ends, too. In a process of its own nobody else would run; there the lease ends
/// by itself.
async fn while_paused<T>(
    stage: &Stage<'_>,
    a: &Contender,
    meanwhile: impl AsyncFnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    if stage.kind().store() == Store::Process {
        return meanwhile().await;
    }
    a.stop()?;
    let meanwhile = meanwhile().await;
    a.cont()?;
    meanwhile
}

/// When a short lease that has just begun is over, on a busy machine.
fn soon_after(stage: &Stage<'_>) -> Duration {
    stage.short_ttl() + Duration::from_secs(2)
}
