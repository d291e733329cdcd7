//! A release by WATCH, GET, compare, MULTI, DEL and EXEC.

use futures_util::FutureExt;
use lock_testkit::fault::Request;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use crate::Failure;
use crate::lab::{Client, Contender, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

const WITHOUT_WATCH: Expected = Expected::CannotApply("it does not release by WATCH and EXEC");

/// EXEC answers nil when a watched key was changed, and since Redis 6.0.9 also when it has expired (redis.io, WATCH).
pub(super) const PINNED: Scenario = Scenario {
    id: "S20",
    title: "the key expires, and changes hands, between WATCH and EXEC",
    steps: &[
        "A, without the driver's care, acquires with a short lease, and releases at once: WATCH, GET, and it is A's",
        "MULTI, DEL and EXEC are held in the network; the lease ends",
        "A asks for the same release on another connection, and is told \"not held\"",
        "EXEC goes on its way and answers nil, which must not be taken for \"released\"",
        "the same once more; now B acquires before EXEC goes on its way, and C tries to acquire what B holds",
    ],
    breaks_by: &[Observable::Stolen, Observable::InLeaseOverlap, Observable::DishonestOutcome],
    beside: &[Observable::RawOverlap],
    expected: &[
        (
            &[Memory, SetnxExpire, GetSet, BlindDelete, Token, Reentrant, Redlock, RedlockFenced, Etcd, ZooKeeper],
            WITHOUT_WATCH,
        ),
        (&[TokenWatch], Expected::Holds("EXEC answers nil; A reads again, and says \"not held\"")),
    ],
    play: |stage| pinned(stage).boxed(),
};

async fn pinned(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b, c) = (stage.contender("a").await?, stage.contender("b").await?, stage.contender("c").await?);
    let nobody = async || b.free().await;
    late_exec(stage, &a, nobody).await?;
    let another = async || b.acquire(stage.long()).await;
    let other = late_exec(stage, &a, another).await?;
    try_to_take(stage, &c).await?;
    other.release().await?;
    Ok(())
}

/// A's EXEC goes on its way when its lease is over and this has come to pass.
async fn late_exec<T>(
    stage: &Stage<'_>,
    a: &Contender,
    meanwhile: impl AsyncFnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let claim = a.claim(stage.short());
    claim.try_acquire().await?;
    let exec = a.proxy().when(Request::command("MULTI")).hold_request();
    let releasing = claim.releasing()?;
    exec.seen().await;
    let meanwhile = meanwhile().await?;
    claim.release().await?;
    exec.release();
    releasing.answer().await?;
    Ok(meanwhile)
}

/// Somebody tries to take what must be held.
async fn try_to_take(stage: &Stage<'_>, client: &Client) -> Result<(), Failure> {
    if let Some(held) = client.try_acquire(stage.long()).await? {
        held.release().await?;
    }
    Ok(())
}

pub(super) const SHARED: Scenario = Scenario {
    id: "S21",
    title: "two tasks of a client release at the same time by WATCH",
    steps: &[
        "two tasks of A hold a lock each: the first with a short lease, the second with a long one",
        "the second releases: WATCH, GET; the reply is held in the network",
        "the first releases: WATCH, GET, and it is A's; that reply is held, too",
        "the second's reply arrives, and it sends MULTI, DEL and EXEC; an EXEC ends every WATCH of its connection",
        "the first's lease ends; B acquires",
        "the first's reply arrives, and it sends MULTI, DEL and EXEC",
        "C tries to acquire what B holds",
    ],
    breaks_by: &[Observable::Stolen, Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap, Observable::DishonestOutcome],
    expected: &[
        (
            &[Memory, SetnxExpire, GetSet, BlindDelete, Token, Reentrant, Redlock, RedlockFenced, Etcd, ZooKeeper],
            WITHOUT_WATCH,
        ),
        (
            &[TokenWatch],
            Expected::Holds("each release has a connection to itself, so nobody else's EXEC ends its WATCH"),
        ),
    ],
    play: |stage| shared(stage).boxed(),
};

async fn shared(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b, c) = (stage.contender("a").await?, stage.contender("b").await?, stage.contender("c").await?);
    let [first, second] = ["first", "second"].map(|task| format!("{}-{task}", stage.key));
    let get = |key: &str| Request::command("GET").with_part(key);

    let firsts = a.on(&first).acquire(stage.short()).await?;
    let seconds = a.on(&second).acquire(stage.long()).await?;
    let seconds_reply = a.proxy().when(get(&second)).hold_reply();
    let second_releases = seconds.releasing()?;
    seconds_reply.seen().await;
    // On one connection this reply is behind the other, and is not seen yet; that it was asked for is.
    let (firsts_reply, asked_before) = (a.proxy().when(get(&first)).hold_reply(), a.proxy().count("GET"));
    let first_releases = firsts.releasing()?;
    stage.until("the first task has asked", || Ok(a.proxy().count("GET") > asked_before)).await?;
    if !b.on(&first).inspect().await? {
        return Err("the first task's lease was over before it could release".into());
    }

    let executed_before = a.proxy().count("EXEC");
    seconds_reply.release();
    stage.until("the second task's EXEC is sent", || Ok(a.proxy().count("EXEC") > executed_before)).await?;
    let other = b.on(&first).acquire(stage.long()).await?;
    firsts_reply.seen().await;
    firsts_reply.release();
    first_releases.answer().await?;
    second_releases.answer().await?;
    try_to_take(stage, &c.on(&first)).await?;
    other.release().await?;
    Ok(())
}
