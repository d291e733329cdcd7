//! A lease or a session is ended before its time.

use std::time::Duration;

use futures_util::FutureExt;
use lock_core::Lease;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::store::{end_session, entries, until_entries};
use crate::Failure;
use crate::lab::{PATIENCE, Resource, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

const NO_SESSION: Expected = Expected::CannotApply("its locks stand under no session; S40 is about an administrator");

pub(super) const HOLDER: Scenario = Scenario {
    id: "S56",
    title: "the store ends the holder's session, and the holder does not hear of it",
    steps: &[
        "A acquires with a long, fixed lease, and reads the guarded counter",
        "A's connection falls silent; an administrator revokes A's lease, or closes A's session",
        "B acquires, adds one to the counter, and goes on holding",
        "A's guard says \"held\", as its deadline is far away; A writes what it read plus one: B's update is lost",
    ],
    breaks_by: &[Observable::LostUpdate, Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory, SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced], NO_SESSION),
        (
            &[Etcd, ZooKeeper],
            Expected::Breaks(
                "the store did not keep the entry for as long as it had said, and no word of it comes through",
            ),
        ),
    ],
    play: |stage| holder(stage, stage.table(false)).boxed(),
};

pub(super) const HOLDER_FENCED: Scenario = Scenario {
    id: "S56+f",
    title: "as S56, and the resource checks fencing tokens",
    steps: &[
        "A acquires with a long, fixed lease, and reads the guarded counter",
        "A's connection falls silent; an administrator revokes A's lease, or closes A's session",
        "B acquires, adds one to the counter with its fencing token, and goes on holding",
        "A's guard says \"held\"; A writes with its own, older token: the resource refuses it",
    ],
    breaks_by: &[Observable::StaleWriteAccepted, Observable::LostUpdate],
    beside: &[Observable::RawOverlap, Observable::InLeaseOverlap],
    expected: &[
        (&[Memory, SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced], NO_SESSION),
        (&[Etcd, ZooKeeper], Expected::Holds("B's token is greater than A's, so the resource refuses A's late write")),
    ],
    play: |stage| holder(stage, stage.table(true)).boxed(),
};

async fn holder(stage: &Stage<'_>, counter: Resource) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    let held = a.acquire(stage.long()).await?;
    let read = a.read(&counter).await?;
    end_session(stage, &a, 0, true).await?;
    let other = b.acquire(stage.long()).await?;
    b.increment(&counter, &other).await?;
    held.is_held().await?;
    a.write(&counter, read + 1, &held).await?;
    Ok(())
}

/// etcd 3.4's own Lock RPC grants both: it looks only whether those before it are gone.
pub(super) const WAITER: Scenario = Scenario {
    id: "S57",
    title: "a waiter's session ends while it waits",
    steps: &[
        "A holds; B waits, and C behind it",
        "an administrator revokes B's lease, or closes B's session: B has no place in the queue any more",
        "A releases: C is the first, and has the lock; B must not have it too, but may stand behind C anew",
        "C releases; then B has it",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap, Observable::Stolen],
    expected: &[
        (
            &[Memory, SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::CannotApply("its waiters stand under no session"),
        ),
        (
            &[Etcd],
            Expected::Holds("before it believes to have the lock, it looks whether its own key is still the one"),
        ),
        (&[ZooKeeper], Expected::Holds("its node is gone with the session, so it stands in line anew")),
    ],
    play: |stage| waiter(stage).boxed(),
};

async fn waiter(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    let c = stage.contender("c").await?;
    let held = a.acquire(stage.long()).await?;
    // One that is renewed, so that nobody asks for a new ttl when it is granted, and sees that the lease is gone.
    let mut second = b.acquiring(Lease::renewed(stage.long().ttl()), PATIENCE)?;
    until_entries(stage, 2).await?;
    let third = c.acquiring(stage.long(), PATIENCE)?;
    until_entries(stage, 3).await?;
    end_session(stage, &b, 1, false).await?;
    held.release().await?;
    let third = third.held().await?;
    // Granted, wrongly, or behind C.
    let until = stage.lab.clocks().lab_now()? + PATIENCE;
    while !second.is_answered() && entries(stage).await? < 2 {
        if stage.lab.clocks().lab_now()? > until {
            return Err("B neither has the lock nor a place".into());
        }
        stage.pass(Duration::from_millis(5)).await?;
    }
    third.release().await?;
    if let Ok(second) = second.outcome().await? {
        second.release().await?;
    }
    Ok(())
}
