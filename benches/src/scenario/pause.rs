//! Family A, in part: the holder is paused.

use futures_util::FutureExt;
use lock_testkit::history::Observable;

use super::{Expected, Scenario};
use crate::Failure;
use crate::lab::{Resource, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

pub(super) const ALL: &[Scenario] = &[PAUSE, PAUSE_FENCED];

const PAUSE: Scenario = Scenario {
    id: "S07",
    title: "the holder is paused past its deadline, and then writes",
    steps: &[
        "A acquires with a short, fixed lease, and reads the guarded counter",
        "A's process is stopped, as by a garbage collection or a swapped page",
        "the lease ends; B acquires, adds one to the counter, and releases",
        "A goes on and writes what it read plus one: B's update is lost",
    ],
    breaks_by: &[Observable::LostUpdate],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("its holders are one process: who pauses one of them pauses all")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced, Etcd, ZooKeeper],
            Expected::Breaks("every lease ends while its holder sleeps, and no lock can stop the holder's late write"),
        ),
    ],
    play: |stage| play(stage, stage.table(false)).boxed(),
};

const PAUSE_FENCED: Scenario = Scenario {
    id: "S07+f",
    title: "as S07, and the resource checks fencing tokens",
    steps: &[
        "A acquires with a short, fixed lease, and reads the guarded counter",
        "A's process is stopped",
        "the lease ends; B acquires, adds one to the counter with its fencing token, and releases",
        "A goes on and writes with its own, older token: the resource refuses it",
    ],
    breaks_by: &[Observable::StaleWriteAccepted, Observable::LostUpdate],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("its holders are one process: who pauses one of them pauses all")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Redlock],
            Expected::CannotApply("there is no fencing token that the resource could check"),
        ),
        (
            &[Token, TokenWatch, Reentrant, RedlockFenced, Etcd, ZooKeeper],
            Expected::Holds("B's token is greater than A's, so the resource refuses A's late write"),
        ),
    ],
    play: |stage| play(stage, stage.table(true)).boxed(),
};

async fn play(stage: &Stage<'_>, counter: Resource) -> Result<(), Failure> {
    let (a, b) = (stage.frail("a").await?, stage.contender("b").await?);
    let held = a.acquire(stage.short()).await?;
    let read = a.read(&counter).await?;
    a.stop()?;
    let other = b.acquire(stage.long()).await?;
    b.increment(&counter, &other).await?;
    other.release().await?;
    a.cont()?;
    a.write(&counter, read + 1, &held).await?;
    Ok(())
}
