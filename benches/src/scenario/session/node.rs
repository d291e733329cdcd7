//! `ZooKeeper`'s nodes: one that nobody knows of, and one that begins to count anew.

use std::time::Duration;

use futures_util::FutureExt;
use lock_testkit::fault::Request;
use lock_testkit::history::Observable;

use super::super::acquire::warm_up;
use super::super::{Expected, Scenario};
use super::store::delete_path;
use crate::Failure;
use crate::lab::Stage;
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

/// How long a client may be busy with connecting anew; its session lives for thirty seconds.
const BOUND: Duration = Duration::from_secs(8);

/// `ZooKeeper` Recipes, "Recoverable Errors and the GUID".
pub(super) const LOST_CREATE: Scenario = Scenario {
    id: "S60",
    title: "the node is made, and its maker does not learn its name",
    steps: &[
        "A acquires the free lock: its node is made, and the reply is lost with the connection; the session lives on",
        "A connects anew and tries again: it must find its own node, and not wait behind it; A releases",
        "A tries once more, and again the reply is lost; A takes the error for an answer, and wants nothing more",
        "C must get the lock although A's session lives on",
    ],
    breaks_by: &[Observable::Stuck],
    beside: &[],
    expected: &[
        (
            &[Memory, SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced, Etcd],
            Expected::CannotApply("the store does not choose the name of its entry; S04 loses its reply"),
        ),
        (&[ZooKeeper], Expected::Holds("the name has the claim's GUID in it, by which the node is found again")),
    ],
    play: |stage| lost_create(stage).boxed(),
};

async fn lost_create(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, c) = (stage.contender("a").await?, stage.contender("c").await?);
    warm_up(stage, &a).await?;
    let makes_a_node =
        || Request::matching(|arguments| arguments[0] == "create" || arguments[0] == "create2").with_part(&stage.key);
    let lost = a.proxy().when(makes_a_node()).lose_reply();
    a.probe(stage.long(), BOUND).await?;
    if lost.times_seen() == 0 {
        return Err("A has got the lock without making a node".into());
    }
    let lost = a.proxy().when(makes_a_node()).lose_reply();
    let trying = a.trying(stage.long())?;
    lost.seen().await;
    if let Ok(held) = trying.outcome().await? {
        held.release().await?;
    }
    c.probe(stage.long(), BOUND).await
}

/// `ZooKeeper` Programmer's Guide, "Sequence Nodes": the counter is the parent's, and of 32 bits with a sign.
pub(super) const PARENT_DELETED: Scenario = Scenario {
    id: "S61",
    title: "the lock's path is removed between two holders, and counts its nodes anew",
    steps: &[
        "A acquires and releases, three times",
        "the empty path is removed, as the server does with containers that nobody uses, and so is its count",
        "B acquires: its fencing token must be greater than all of A's",
    ],
    breaks_by: &[Observable::TokenRegression],
    beside: &[],
    expected: &[
        (
            &[Memory, SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced, Etcd],
            Expected::CannotApply("its token, if it has one, is not the count of a path; S43 sets back its source"),
        ),
        (&[ZooKeeper], Expected::Holds("the token is the number of the transaction, which counts for the whole store")),
    ],
    play: |stage| parent_deleted(stage).boxed(),
};

async fn parent_deleted(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    for _ in 0..3 {
        a.acquire(stage.long()).await?.release().await?;
    }
    delete_path(stage).await?;
    b.acquire(stage.long()).await?.release().await?;
    Ok(())
}
