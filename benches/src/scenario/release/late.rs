use futures_util::FutureExt;
use lock_testkit::fault::Armed;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::last_step;
use crate::Failure;
use crate::lab::Stage;
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

pub(super) const LATE_RELEASE: Scenario = Scenario {
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

pub(super) const GET_THEN_DEL: Scenario = Scenario {
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
    let late: Vec<_> = a.proxies().iter().map(|proxy| proxy.when(last_step(stage)).hold_request()).collect();
    let releasing = held.releasing()?;
    // One node of five would do; where there is one server, it is this.
    late[0].seen().await;
    let other = b.acquire(stage.long()).await?;
    late.iter().for_each(Armed::release);
    releasing.answer().await?;
    if let Some(third) = c.try_acquire(stage.long()).await? {
        third.release().await?;
    }
    other.release().await?;
    Ok(())
}

pub(super) const HONEST: Scenario = Scenario {
    id: "S24",
    title: "the lock was lost before the release: what does the release say?",
    steps: &[
        "A acquires with a short, fixed lease",
        "the lease ends; B acquires with a long one",
        "A releases, and is told what became of it",
        "B releases",
    ],
    breaks_by: &[Observable::DishonestOutcome],
    beside: &[Observable::RawOverlap, Observable::Stolen],
    expected: &[
        (&[BlindDelete], Expected::Breaks("DEL answers 1, because it has deleted something: B's entry")),
        (
            &[Memory, SetnxExpire, GetSet, Token, TokenWatch, Reentrant],
            Expected::Holds("the owner is compared, and is another: `NotHeld`"),
        ),
        (&[Redlock, RedlockFenced], Expected::Holds("a majority says that it is another's: `NotHeld`")),
        (&[Etcd, ZooKeeper], Expected::Holds("the holder's own entry is gone: `NotHeld`")),
    ],
    play: |stage| honest(stage).boxed(),
};

async fn honest(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = stage.contender("a").await?;
    let b = stage.beside(&a, "b").await?;
    let held = a.acquire(stage.short()).await?;
    let other = b.acquire(stage.long()).await?;
    held.release().await?;
    other.release().await?;
    Ok(())
}
