use std::io;
use std::time::Duration;

use futures_util::FutureExt;
use lock_clock::Clock;
use lock_testkit::history::Observable;
use lock_testkit::{EtcdCluster, ZooKeeperEnsemble};
use zookeeper_client::{Acls, CreateMode};

use super::super::{Expected, Scenario};
use crate::Failure;
use crate::lab::{PATIENCE, Place, Setup, Slot, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};
use crate::tell::act;

/// "`ZooKeeper` doesn't use real time, or clock time, at all except to put timestamps into the stat structure"
/// (`ZooKeeper` Programmer's Guide, "Time in `ZooKeeper`").
pub(super) const ZOOKEEPER_CLOCKS: Scenario = Scenario {
    id: "S16",
    title: "ZooKeeper's wall clock jumps; then time passes",
    steps: &[
        "A acquires at a ZooKeeper of its own",
        "the server's wall clock jumps forward by an hour; B tries to acquire what A still holds",
        "it jumps back by two hours; B tries again",
        "A and B are stopped, and a minute passes for everybody, the server's monotonic clock included",
        "the session of A is over, and its node gone: C acquires; A looks at its guard, and acts if that says \"held\"",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (
            &[Memory, SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced, Etcd],
            Expected::CannotApply("it does not keep its locks in ZooKeeper; S13 and S14 are about Redis"),
        ),
        (&[ZooKeeper], Expected::Holds("sessions end by the monotonic clock, and only by that")),
    ],
    play: |stage| zookeeper_clocks(stage).boxed(),
};

async fn zookeeper_clocks(stage: &Stage<'_>) -> Result<(), Failure> {
    let clock = stage.lab.slot()?;
    let ensemble = zookeeper_by(&clock).await?;
    let place = Place::zookeeper(&ensemble);
    let a = stage.contender_at("a", &place, Setup::patient()).await?;
    let b = stage.contender_at("b", &place, Setup::patient()).await?;
    let held = a.acquire(stage.long()).await?;

    act("the server's wall clock is set an hour ahead");
    clock.step_wall_forward(Duration::from_secs(3_600))?;
    b.try_acquire(stage.long()).await?;
    held.is_held().await?;
    act("the server's wall clock is set two hours back");
    clock.step_wall_back(Duration::from_secs(7_200))?;
    b.try_acquire(stage.long()).await?;
    held.is_held().await?;

    a.stop()?;
    b.stop()?;
    act("a minute passes for everybody");
    stage.lab.clocks().step(Duration::from_secs(60))?;
    let c = stage.contender_at("c", &place, Setup::patient()).await?;
    c.acquire(stage.long()).await?;
    a.cont()?;
    held.is_held().await?;
    Ok(())
}

/// One server that lives by this clock, proven by the time that it stamps on a node.
async fn zookeeper_by(clock: &Slot) -> Result<ZooKeeperEnsemble, Failure> {
    let builder = ZooKeeperEnsemble::builder(1).tick(Duration::from_millis(200)).config("maxSessionTimeout", "60000");
    let builder = clock.env().into_iter().fold(builder, |builder, (name, value)| builder.env(name, value));
    let ensemble = builder.start()?;
    let client = zookeeper_client::Client::connect(&ensemble.hosts()).await?;
    let stamped = client.create("/proof", b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await?.0.mtime;
    clock.prove(Clock::Wall, || Ok(Duration::from_millis(u64::try_from(stamped).map_err(io::Error::other)?)))?;
    Ok(ensemble)
}

pub(super) const LEADER_CHANGE: Scenario = Scenario {
    id: "S17",
    title: "etcd's leader is lost while a lease runs",
    steps: &[
        "A acquires at a cluster of three with a short, fixed lease, and is stopped",
        "the leader is killed; the next one gives every lease its full ttl again",
        "B waits for the lock, and must not have it before A's deadline",
        "C too: it must have it within the ttl, the ttl again, and the time of the election",
    ],
    breaks_by: &[Observable::InLeaseOverlap, Observable::Stuck],
    beside: &[Observable::RawOverlap],
    expected: &[
        (
            &[
                Memory,
                SetnxExpire,
                GetSet,
                BlindDelete,
                Token,
                TokenWatch,
                Reentrant,
                Redlock,
                RedlockFenced,
                ZooKeeper,
            ],
            Expected::CannotApply("it does not keep its locks in etcd"),
        ),
        (
            &[Etcd],
            Expected::Holds(
                "a new leader \"extends timeouts automatically for all leases\", so the lock ends later, and ends",
            ),
        ),
    ],
    play: |stage| leader_change(stage).boxed(),
};

async fn leader_change(stage: &Stage<'_>) -> Result<(), Failure> {
    let cluster = EtcdCluster::builder().members(3).start()?;
    let place = Place::etcd(&cluster);
    let leader = cluster.leader()?;
    let a = stage.contender_at("a", &place, Setup::patient().with_request_limit(Duration::from_secs(1))).await?;
    let b = stage.contender_at("b", &place, Setup::patient().with_request_limit(Duration::from_secs(1))).await?;
    let c = stage.contender_at("c", &place, Setup::patient().with_request_limit(Duration::from_secs(1))).await?;
    a.acquire(stage.short()).await?;
    a.stop()?;
    cluster.member(leader).kill()?;
    let waiting = b.acquiring(stage.long(), PATIENCE)?;
    let handed_on = async { waiting.held().await?.release().await };
    let (answer, ()) = tokio::try_join!(handed_on, c.probe(stage.short(), stage.bound()))?;
    drop(answer);
    Ok(())
}
