use std::time::Duration;

use futures_util::FutureExt;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use crate::Failure;
use crate::lab::{Setup, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

/// Redisson #5698 is such a report, and #3636 calls it expected.
pub(super) const STARVED: Scenario = Scenario {
    id: "S27",
    title: "code that blocks starves the renewal",
    steps: &[
        "A has one thread; it acquires with a lease that is renewed",
        "A's task calls code that blocks the thread for longer than the lease: no renewal is sent",
        "the lease ends; B acquires",
        "A's task goes on; its guard says at once that the lock is lost, and A stops",
    ],
    breaks_by: &[Observable::RawOverlap],
    // A renewal that was under way makes A owe a release, which by a blind DEL is B's.
    beside: &[Observable::Stolen],
    expected: &[
        (&[Memory], Expected::CannotApply("who blocks the one thread blocks everybody who could want the lock")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced, Etcd, ZooKeeper],
            Expected::Breaks(
                "whatever A's task did meanwhile, B did beside it; the guard is right, but nobody could ask it",
            ),
        ),
    ],
    play: |stage| starved(stage).boxed(),
};

async fn starved(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = stage.contender_with("a", Setup::frail().on_one_thread()).await?;
    let b = stage.contender("b").await?;
    let held = a.acquire(stage.renewed()).await?;
    let blocked = a.block(longer_than_the_lease(stage))?;
    let other = b.acquire(stage.long()).await?;
    blocked.answer().await?;
    held.is_held().await?;
    held.lost().await?;
    other.release().await?;
    Ok(())
}

fn longer_than_the_lease(stage: &Stage<'_>) -> Duration {
    let slack = match stage.kind() {
        // Until the server ends what has expired: a lease, or a session of two seconds.
        Etcd | ZooKeeper => Duration::from_millis(1_600),
        _ => Duration::from_millis(300),
    };
    stage.short_ttl() + slack
}
