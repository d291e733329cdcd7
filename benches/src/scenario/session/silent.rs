//! The connection is silent for a while.

use std::time::Duration;

use futures_util::FutureExt;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use crate::Failure;
use crate::lab::Stage;
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

/// Curator's guide, "Error Handling": after SUSPENDED "you cannot be certain that you still hold the lock".
pub(super) const SILENT: Scenario = Scenario {
    id: "S59",
    title: "the holder's connection is silent: for a moment, and for longer than the session",
    steps: &[
        "A acquires with a lease that is renewed",
        "nothing passes on A's connection for a quarter of a second: A still holds, and B is refused",
        "nothing passes until the store has given A up, and B has the lock",
        "A is told by nobody, and looks at its guard: by then it must say \"lost\"",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (
            &[Memory, SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::CannotApply("it has no session that could outlive a silence, or not; S45 cuts it off"),
        ),
        (
            &[Etcd, ZooKeeper],
            Expected::Holds("the deadline is the client's own, and lies before the store's: it needs no message"),
        ),
    ],
    play: |stage| silent(stage).boxed(),
};

async fn silent(stage: &Stage<'_>) -> Result<(), Failure> {
    const MOMENT: Duration = Duration::from_millis(250);

    let (a, b) = (stage.frail("a").await?, stage.contender("b").await?);
    let held = a.acquire(stage.renewed()).await?;
    a.proxy().black_hole();
    stage.pass(MOMENT).await?;
    a.proxy().heal();
    if !held.is_held().await? {
        return Err("this machine is too slow: the moment was longer than the lease".into());
    }
    if let Some(other) = b.try_acquire(stage.long()).await? {
        other.release().await?;
    }
    a.proxy().black_hole();
    let other = b.acquire(stage.long()).await?;
    held.is_held().await?;
    a.proxy().heal();
    other.release().await?;
    Ok(())
}
