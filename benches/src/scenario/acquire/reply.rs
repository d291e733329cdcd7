use std::time::Duration;

use futures_util::FutureExt;
use lock_core::Lease;
use lock_testkit::fault::Armed;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::{begins_the_lease, takes_the_lock, warm_up};
use crate::Failure;
use crate::lab::{Answer, PATIENCE, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

pub(super) const LOST_REPLY: Scenario = Scenario {
    id: "S04",
    title: "the acquire's reply is lost, and the client tries again",
    steps: &[
        "A acquires without the driver's care; the store grants, and the reply is lost with its connection",
        "A tries again for the same claim, until it is answered",
        "if it is granted, A releases; if it is told \"busy\", A gives up",
        "nobody believes to hold the lock: a fresh client must get it at once",
    ],
    breaks_by: &[Observable::Stuck],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("a call of a function has no reply that could be lost")),
        (
            &[SetnxExpire, GetSet, BlindDelete],
            Expected::Breaks(
                "the second try takes its own entry for another's: A has locked itself out (the driver undoes it)",
            ),
        ),
        (
            &[Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::Holds("the script finds the claim's own entry, and that is its grant"),
        ),
        (&[Etcd], Expected::Holds("the second try finds the claim's own key in the queue")),
        (&[ZooKeeper], Expected::Holds("the node bears the claim's GUID, by which it is found again")),
    ],
    play: |stage| lost_reply(stage).boxed(),
};

async fn lost_reply(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = stage.contender("a").await?;
    warm_up(stage, &a).await?;
    let lost: Vec<_> = a.proxies().iter().map(|proxy| proxy.when(takes_the_lock(stage)).lose_reply()).collect();
    let claim = a.claim(stage.long());
    let mut answer = claim.try_acquire().await?;
    for lost in &lost {
        lost.seen().await;
    }
    let asked_until = stage.lab.clocks().lab_now()? + PATIENCE;
    while matches!(answer, Answer::Error { .. }) && stage.lab.clocks().lab_now()? < asked_until {
        answer = claim.try_acquire().await?;
    }
    match answer {
        Answer::Granted { .. } => drop(claim.release().await?),
        Answer::Busy => {}
        other => return Err(format!("A tries again, and the answer is {other:?}").into()),
    }
    stage.probe_at_once().await
}

/// A pull request to node-redlock (#167) proposed to count from the reply.
pub(super) const SLOW_REPLY: Scenario = Scenario {
    id: "S06",
    title: "the acquire's reply is slow: from when does the lease count?",
    steps: &[
        "A acquires with a fixed lease of a second; the store grants, and the reply is held in the network",
        "B begins to wait for the lock",
        "when most of the lease is over, the reply arrives; A acts as long as its guard lets it",
        "the lease ends in the store, and B has the lock",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("a call of a function has no reply that could be slow")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced, Etcd],
            Expected::Holds("the deadline counts from just before the send, and no store counts from earlier"),
        ),
        (&[ZooKeeper], Expected::Holds("the session outlives the lease, and its deadline counts from before the send")),
    ],
    play: |stage| slow_reply(stage).boxed(),
};

async fn slow_reply(stage: &Stage<'_>) -> Result<(), Failure> {
    /// Every strategy grants it, and what the slow reply leaves of it is enough for a busy machine.
    const LEASE: Lease = Lease::fixed(Duration::from_secs(1));

    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    warm_up(stage, &a).await?;
    let slow: Vec<_> = a.proxies().iter().map(|proxy| proxy.when(begins_the_lease(stage)).hold_reply()).collect();
    let trying = a.trying(LEASE)?;
    for slow in &slow {
        slow.seen().await;
    }
    let waiting = b.acquiring(stage.long(), PATIENCE)?;
    stage
        .pass(match stage.kind() {
            // A round waits for a node for half a second at most.
            Redlock | RedlockFenced => Duration::from_millis(400),
            _ => LEASE.ttl() * 3 / 4,
        })
        .await?;
    slow.iter().for_each(Armed::release);
    let held = trying.held().await?;
    let other = waiting.held().await?;
    held.is_held().await?;
    other.release().await?;
    Ok(())
}
