use futures_util::FutureExt;
use lock_testkit::fault::Request;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use crate::Failure;
use crate::lab::Stage;
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

/// "Even the instances it believed it was not able to lock": redis.io, "Distributed Locks with Redis".
pub(super) const LEFT_BEHIND: Scenario = Scenario {
    id: "S25",
    title: "a release does not reach every node, and a failed acquire does not know which nodes it has locked",
    steps: &[
        "A acquires with a short lease, and releases; on two of five nodes the release never arrives",
        "a third node is down for B, which begins to acquire: two free nodes are no majority",
        "the entries that were left behind end with A's lease, and B has the lock; it releases",
        "A tries to acquire with a long lease; three of five replies are lost, so A has failed",
        "A must undo it on all five nodes: a fresh client gets the lock at once",
    ],
    breaks_by: &[Observable::Stuck],
    beside: &[],
    expected: &[
        (
            &[Memory, SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Etcd, ZooKeeper],
            Expected::CannotApply("it releases at one place, which S23 and S26 are about"),
        ),
        (
            &[Redlock, RedlockFenced],
            Expected::Holds("an entry that was left behind ends with its lease; a failed round is undone everywhere"),
        ),
    ],
    play: |stage| left_behind(stage).boxed(),
};

async fn left_behind(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    let of_the_lock = || Request::any().with_part(&stage.key);

    let held = a.acquire(stage.short()).await?;
    let away: Vec<_> = a.proxies()[3..].iter().map(|proxy| proxy.when(of_the_lock()).every_time().cut()).collect();
    b.proxies()[2].refuse_connections();
    b.proxies()[2].cut_connections();
    held.release().await?;
    b.probe(stage.short(), stage.bound()).await?;
    drop(away);

    let lost: Vec<_> = a.proxies()[2..].iter().map(|proxy| proxy.when(of_the_lock()).lose_reply()).collect();
    let failed = a.trying(stage.long())?.outcome().await?;
    for lost in &lost {
        lost.seen().await;
    }
    if failed.is_ok() {
        return Err("A has the lock, although three of five replies were lost".into());
    }
    stage.probe().await
}
