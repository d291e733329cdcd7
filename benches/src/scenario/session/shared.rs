//! Many locks under one session.

use std::time::Duration;

use futures_util::FutureExt;
use lock_core::Lease;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use crate::Failure;
use crate::lab::{Answer, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

/// etcd's `v3lock.proto`: locking twice with one lease "will be treated as a single acquisition".
pub(super) const ONE_LEASE: Scenario = Scenario {
    id: "S58",
    title: "two tasks of one client want one lock, under one session",
    steps: &[
        "task 1 of A acquires a first and a second lock with leases that are renewed, and so under one lease or session",
        "task 2 of A tries to acquire the first lock too, past the driver's own queue: it must be refused",
        "task 1 releases the first lock",
        "B tries to acquire the second, which task 1 still holds",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap, Observable::TokenRegression, Observable::Stolen, Observable::DishonestOutcome],
    expected: &[
        (
            &[Memory, SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::CannotApply("its locks share nothing that lives and ends"),
        ),
        (&[Etcd], Expected::Holds("the key bears the claim, so the same lease is not taken for the same claim")),
        (&[ZooKeeper], Expected::Holds("each claim has a node of its own in the one session")),
    ],
    play: |stage| one_lease(stage).boxed(),
};

async fn one_lease(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    let lease = Lease::renewed(Duration::from_secs(14));
    let another = format!("{}+2", stage.key);
    let (first, second) = (a.claim(lease), a.on(&another).claim(lease));
    for claim in [&first, &second] {
        match claim.try_acquire().await? {
            Answer::Granted { .. } => {}
            other => return Err(format!("the lock is free, and the answer is {other:?}").into()),
        }
    }
    let twice = a.claim(lease);
    if let Answer::Granted { .. } = twice.try_acquire().await? {
        twice.release().await?;
    }
    first.release().await?;
    if let Some(other) = b.on(&another).try_acquire(stage.long()).await? {
        other.release().await?;
    }
    second.release().await?;
    Ok(())
}
