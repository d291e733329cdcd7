//! The holder is gone, and nobody says so.

use std::time::Duration;

use futures_util::FutureExt;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::{waits, woken};
use crate::Failure;
use crate::lab::{PATIENCE, Setup, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

/// A waiter who trusts to messages waits for ever; who looks every [`wait::FLOOR`](lock_core::wait::FLOOR) is in time.
const BOUND: Duration = Duration::from_millis(1_500);

pub(super) const NO_MESSAGE: Scenario = Scenario {
    id: "S52",
    title: "a crashed holder's entry ends, and nothing is published",
    steps: &[
        "A acquires with a short, fixed lease; B waits, and listens",
        "A is killed: nobody releases, and on Redis nobody publishes",
        "A's entry ends in the store: B must have the lock soon",
    ],
    breaks_by: &[Observable::LostWakeup],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("a lock in a process ends with the process, and its waiters too")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Redlock, RedlockFenced],
            Expected::Holds("it asks again soon, whatever has happened"),
        ),
        (
            &[Token, TokenWatch, Reentrant],
            Expected::Holds("it sleeps no longer than the holder's entry will live, which \"busy\" tells it"),
        ),
        (&[Etcd, ZooKeeper], Expected::Holds("the store ends the entry by itself, and that is told like a release")),
    ],
    play: |stage| no_message(stage).boxed(),
};

async fn no_message(stage: &Stage<'_>) -> Result<(), Failure> {
    let frail = Setup::frail();
    let (a, b) = (stage.contender_with("a", frail).await?, stage.contender("b").await?);
    let c = stage.contender("c").await?;
    a.acquire(stage.short()).await?;
    let mut waiting = b.acquiring(stage.long(), PATIENCE)?;
    waits(stage, b.proxies()).await?;
    a.kill()?;
    let until = stage.lab.clocks().lab_now()? + PATIENCE;
    while !waiting.is_answered() && c.inspect().await? {
        if stage.lab.clocks().lab_now()? > until {
            return Err("the store keeps the entry of a holder who is dead".into());
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    if !waiting.is_answered() {
        stage.history.found_free_for(&*stage.key, b.name(), BOUND);
    }
    if let Some(held) = woken(stage, &b, waiting, BOUND).await? {
        held.release().await?;
    }
    Ok(())
}
