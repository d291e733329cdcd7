use std::time::Duration;

use futures_util::FutureExt;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::{ONE_REDIS, Servers, newcomer};
use crate::lab::{Contender, Place, Setup, Stage};
use crate::strategy::Kind::{Etcd, Memory, Redlock, RedlockFenced, ZooKeeper};
use crate::tell::act;
use crate::{Failure, Store};

/// redis.io, "Distributed Locks with Redis", "Performance, Crash Recovery and fsync".
pub(super) const RESTART: Scenario = Scenario {
    id: "S36",
    title: "the server restarts, without persistence",
    steps: &[
        "A acquires with a long lease; of Redlock's three servers it has reached two",
        "the server (of Redlock's, one of A's two) is killed, and restarts: a Redis comes back empty",
        "B, who reaches every server, tries to acquire what A still holds",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("the lock and its holders are one process, which ends as a whole")),
        (ONE_REDIS, Expected::Breaks("nothing was written to the disk, so the server has never heard of A")),
        (
            &[Redlock, RedlockFenced],
            Expected::Breaks("the one server that both majorities share has forgotten its vote, and gives it to B"),
        ),
        (&[Etcd], Expected::Holds("key and lease were on the disk before A was answered")),
        (
            &[ZooKeeper],
            Expected::Holds("node and session come back from its log, and the session's timeout begins anew"),
        ),
    ],
    play: |stage| restart(stage).boxed(),
};

async fn restart(stage: &Stage<'_>) -> Result<(), Failure> {
    match stage.kind().store() {
        Store::Etcd => {
            let etcd = stage.lab.etcd()?;
            let _a = holder(stage).await?;
            etcd.member(0).restart()?;
            newcomer(stage, &Place::etcd(etcd)).await
        }
        Store::ZooKeeper => {
            let zookeeper = stage.lab.zookeeper()?;
            let _a = holder(stage).await?;
            zookeeper.restart(0)?;
            newcomer(stage, &Place::zookeeper(zookeeper)).await
        }
        Store::Process | Store::Redis | Store::Nodes => {
            let servers = Servers::start(stage, &[])?;
            let _a = servers.holder(stage).await?;
            servers.struck.server.restart()?;
            newcomer(stage, &servers.place()).await
        }
    }
}

async fn holder(stage: &Stage<'_>) -> Result<Contender, Failure> {
    let a = stage.contender("a").await?;
    a.acquire(stage.long()).await?;
    Ok(a)
}

/// The same source: "delayed restarts".
pub(super) const DELAYED_RESTART: Scenario = Scenario {
    id: "S38",
    title: "as S36, and the server stays away until every lease is over",
    steps: &[
        "A acquires with a long lease; of Redlock's three servers it has reached two",
        "the server (of Redlock's, one of A's two) is killed, and stays away for longer than the longest lease",
        "it restarts empty; B acquires",
        "A looks at its guard, and acts if that says \"held\"",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("the lock and its holders are one process, which ends as a whole")),
        (ONE_REDIS, Expected::Holds("what the server has forgotten was over, and A knows that by its own clock")),
        (
            &[Redlock, RedlockFenced],
            Expected::Holds(
                "the vote that is given twice was given to a lease that is over; A knows that by its own clock",
            ),
        ),
        (
            &[Etcd, ZooKeeper],
            Expected::CannotApply("it keeps what it knows over a restart (S36), so there is no delay to choose"),
        ),
    ],
    play: |stage| delayed_restart(stage).boxed(),
};

async fn delayed_restart(stage: &Stage<'_>) -> Result<(), Failure> {
    let servers = Servers::start(stage, &[])?;
    let a = servers.a(stage).await?;
    let held = a.acquire(stage.long()).await?;
    servers.struck.server.kill()?;
    a.stop()?;
    act("time passes for everybody: every lease is over");
    stage.lab.clocks().step(stage.long().ttl() + Duration::from_secs(1))?;
    servers.struck.server.restart()?;
    let b = stage.contender_at("b", &servers.place(), Setup::patient()).await?;
    let other = b.acquire(stage.long()).await?;
    a.cont()?;
    held.is_held().await?;
    other.release().await?;
    Ok(())
}
