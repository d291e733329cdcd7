//! A waiter does not want the lock any more.

use std::time::Duration;

use futures_util::FutureExt;
use lock_core::ErrorKind;
use lock_testkit::RedisServer;
use lock_testkit::fault::Armed;
use lock_testkit::history::Observable;

use super::super::acquire::takes_the_lock;
use super::super::{Expected, Scenario};
use super::waits;
use crate::Failure;
use crate::lab::{PATIENCE, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

/// What a place in a queue, or a grant, that nobody wants may cost the others; it would live for as long as a lease.
const BOUND: Duration = Duration::from_secs(4);

pub(super) const CANCELLED: Scenario = Scenario {
    id: "S54",
    title: "a waiter is cancelled, in the queue and with its grant on the way",
    steps: &[
        "A holds; B waits, and C behind it; B's future is dropped",
        "A releases: C must have the lock soon, and nobody may stay subscribed",
        "C releases; B tries again, and the store's answer that it has the lock is held in the network",
        "B's future is dropped; the answer arrives: C must get the lock soon",
    ],
    breaks_by: &[Observable::LostWakeup, Observable::Stuck],
    beside: &[],
    expected: &[
        (&[Memory], Expected::Holds("the place in the table's queue is left when the future is dropped")),
        (
            &[SetnxExpire, GetSet, BlindDelete],
            Expected::Holds(
                "a waiter has no place; the call in flight is run to its end, and what it brings given back",
            ),
        ),
        (
            &[Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::Holds("the call in flight is run to its end, and what it brings is given back"),
        ),
        (
            &[Etcd, ZooKeeper],
            Expected::Holds("the call in flight is told to stop and leaves the queue, or gives back what it brings"),
        ),
    ],
    play: |stage| cancelled(stage).boxed(),
};

async fn cancelled(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = stage.contender("a").await?;
    let (b, c) = (stage.beside(&a, "b").await?, stage.beside(&a, "c").await?);
    let held = a.acquire(stage.long()).await?;
    let waiting = b.acquiring(stage.long(), PATIENCE)?;
    waits(stage, b.proxies()).await?;
    let behind = c.acquiring(stage.long(), PATIENCE)?;
    waits(stage, c.proxies()).await?;
    waiting.cancel().await?;
    held.release().await?;
    stage.history.found_free_for(&*stage.key, c.name(), BOUND);
    match behind.outcome().await? {
        Ok(held) => drop(held.release().await?),
        // It has waited for longer than it should.
        Err(answer) if answer.is_error(ErrorKind::TimedOut) => return Ok(()),
        Err(answer) => return Err(format!("C waits, and the answer is {answer:?}").into()),
    }
    if let Token | TokenWatch | Reentrant = stage.kind() {
        let server = &stage.lab.redis().server;
        stage.until("nobody is subscribed any more", || Ok(channels(server, &stage.key)?.is_empty())).await?;
    }

    if b.proxies().is_empty() {
        // A grant that is on no way is there at once.
        return c.probe(stage.short(), BOUND).await;
    }
    let late: Vec<_> = b.proxies().iter().map(|proxy| proxy.when(takes_the_lock(stage)).hold_reply()).collect();
    let granted = b.acquiring(stage.long(), PATIENCE)?;
    for late in &late {
        late.seen().await;
    }
    granted.cancel().await?;
    late.iter().for_each(Armed::release);
    c.probe(stage.short(), BOUND).await
}

/// The channels of this cell to which anybody listens.
fn channels(server: &RedisServer, mark: &str) -> Result<Vec<String>, Failure> {
    Ok(server.command(&["PUBSUB", "CHANNELS", &format!("*{mark}*")])?)
}
