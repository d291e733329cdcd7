//! Family C: a lock is given back late, twice, or by somebody who has lost it.

use futures_util::FutureExt;
use lock_testkit::fault::Request;
use lock_testkit::history::Observable;

use super::{Expected, Scenario};
use crate::Failure;
use crate::lab::Stage;
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

pub(super) const ALL: &[Scenario] = &[LATE_RELEASE, GET_THEN_DEL];

const LATE_RELEASE: Scenario = Scenario {
    id: "S18",
    title: "the lock expires, another takes it, and the old holder releases",
    steps: &[
        "A acquires with a short, fixed lease, and is stopped",
        "the lease ends; B acquires with a long one",
        "A goes on, and releases",
        "C tries to acquire what B still holds",
    ],
    breaks_by: &[Observable::Stolen, Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap, Observable::DishonestOutcome],
    expected: &[
        (&[Memory], Expected::CannotApply("its holders are one process: who pauses one of them pauses all")),
        (&[BlindDelete], Expected::Breaks("the release deletes the entry, whoever's it is by then")),
        (
            &[SetnxExpire, GetSet, Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::Holds("the release compares the owner before it deletes"),
        ),
        (&[Etcd, ZooKeeper], Expected::Holds("the release names the holder's own entry, which is nobody else's")),
    ],
    play: |stage| late_release(stage).boxed(),
};

async fn late_release(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.frail("a").await?, stage.contender("b").await?);
    let c = stage.contender("c").await?;
    let held = a.acquire(stage.short()).await?;
    a.stop()?;
    let other = b.acquire(stage.long()).await?;
    a.cont()?;
    held.release().await?;
    if let Some(third) = c.try_acquire(stage.long()).await? {
        third.release().await?;
    }
    other.release().await?;
    Ok(())
}

const GET_THEN_DEL: Scenario = Scenario {
    id: "S19",
    title: "the lock changes hands between the comparison of a release and its DEL",
    steps: &[
        "A acquires with a short, fixed lease, and releases at once",
        "the last step of A's release is held in the network: the DEL, the EXEC, or the one request",
        "the lease ends; B acquires with a long one",
        "A's last step goes on its way",
        "C tries to acquire what B still holds",
    ],
    breaks_by: &[Observable::Stolen, Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap, Observable::DishonestOutcome],
    expected: &[
        (&[Memory], Expected::CannotApply("a call of a function has no step that could be late")),
        (&[SetnxExpire, GetSet], Expected::Breaks("the DEL comes after the comparison, and asks nobody")),
        (&[BlindDelete], Expected::Breaks("the release deletes the entry, whoever's it is by then")),
        (&[Token, Reentrant, Redlock, RedlockFenced], Expected::Holds("the store compares and deletes in one step")),
        (&[TokenWatch], Expected::Holds("the EXEC fails, because what is watched has changed")),
        (&[Etcd, ZooKeeper], Expected::Holds("the release names the holder's own entry, which is nobody else's")),
    ],
    play: |stage| get_then_del(stage).boxed(),
};

async fn get_then_del(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.frail("a").await?, stage.contender("b").await?);
    let c = stage.contender("c").await?;
    let held = a.acquire(stage.short()).await?;
    let late: Vec<_> = a.proxies().iter().map(|proxy| proxy.when(last_step()).hold_request()).collect();
    let releasing = held.releasing()?;
    // One node of five would do; where there is one server, it is this.
    late[0].seen().await;
    let other = b.acquire(stage.long()).await?;
    late.iter().for_each(lock_testkit::fault::Armed::release);
    releasing.answer().await?;
    if let Some(third) = c.try_acquire(stage.long()).await? {
        third.release().await?;
    }
    other.release().await?;
    Ok(())
}

/// What ends a release.
pub(super) fn last_step() -> Request {
    Request::matching(|arguments| {
        let is = |name: &[u8]| arguments.first().is_some_and(|first| first.eq_ignore_ascii_case(name));
        [&b"DEL"[..], b"UNLINK", b"EXEC", b"EVALSHA", b"EVAL", b"LeaseRevoke", b"Txn", b"delete"].into_iter().any(is)
    })
}
