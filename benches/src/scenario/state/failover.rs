use std::io;
use std::time::Duration;

use futures_util::FutureExt;
use lock_testkit::RedisServer;
use lock_testkit::fault::Proxy;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::members::Members;
use super::{ONE_REDIS, Servers, newcomer};
use crate::lab::{Answer, Clocked, Resource, Setup, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};
use crate::{Failure, Store};

const IN_PROCESS: &str = "there is no server";
const ASKS_NO_REPLICA: &str = "it does not ask whether replicas have the lock: S33";
const NO_REPLICAS: &str = "its servers have no replicas: each is a vote of its own";
const BY_MAJORITY: &str = "every write waits for a majority, without being asked";

/// redis.io, "Distributed Locks with Redis", "Why Failover-based Implementations Are Not Enough".
pub(super) const FAILOVER: Scenario = Scenario {
    id: "S33",
    title: "the master dies before its replica has the lock, and the replica is promoted",
    steps: &[
        "the way from the master to its replica is held up; of Redlock's three servers one is such a pair",
        "A acquires with a long lease",
        "the master is killed, and the replica promoted; of etcd's and ZooKeeper's three members the leader is killed",
        "B tries to acquire what A still holds",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply(IN_PROCESS)),
        (ONE_REDIS, Expected::Breaks("the master answers before its replica has heard of the lock")),
        (
            &[Redlock, RedlockFenced],
            Expected::Holds(
                "two of three servers still know A (had A reached only two, it would be S36: give them no replicas)",
            ),
        ),
        (
            &[Etcd, ZooKeeper],
            Expected::Holds("A was answered when a majority had the lock, and the next leader comes from it"),
        ),
    ],
    play: |stage| failover(stage).boxed(),
};

async fn failover(stage: &Stage<'_>) -> Result<(), Failure> {
    if let Store::Etcd | Store::ZooKeeper = stage.kind().store() {
        let members = Members::start(stage)?;
        let leader = members.leader(stage).await?;
        let a = stage.contender_at("a", &members.place(), Setup::patient()).await?;
        a.acquire(stage.long()).await?;
        members.kill(leader)?;
        members.leader_after(stage, leader).await?;
        return newcomer(stage, &members.place().without(leader)).await;
    }
    let pair = Replicated::start(stage, 1).await?;
    pair.hold_up(0);
    let a = stage.contender_at("a", &pair.servers.place(), Setup::patient()).await?;
    a.acquire(stage.long()).await?;
    pair.fail_over_to(stage, 0).await?;
    newcomer(stage, &pair.servers.with(&pair.replicas[0].server)).await
}

/// redis.io, "WAIT": "does not make Redis a strongly consistent store".
pub(super) const WAIT_UNREPLICATED: Scenario = Scenario {
    id: "S34a",
    title: "as S33, and A asks that a replica has the lock",
    steps: &[
        "the ways from the master to its two replicas are held up",
        "A acquires with a long lease that counts when one replica has it (WAIT 1)",
        "the master is killed, one replica is promoted, and the other follows it",
        "B tries to acquire in the same way",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply(IN_PROCESS)),
        (&[SetnxExpire, GetSet, BlindDelete], Expected::CannotApply(ASKS_NO_REPLICA)),
        (
            &[Token, TokenWatch, Reentrant],
            Expected::Holds(
                "it waits on the connection that wrote, is told that no replica has it, and grants nothing",
            ),
        ),
        (&[Redlock, RedlockFenced], Expected::CannotApply(NO_REPLICAS)),
        (&[Etcd, ZooKeeper], Expected::CannotApply(BY_MAJORITY)),
    ],
    play: |stage| wait_for_one(stage, &[0, 1]).boxed(),
};

pub(super) const WAIT_FOR_ONE_OF_TWO: Scenario = Scenario {
    id: "S34b",
    title: "one of two replicas has the lock, and the other is promoted",
    steps: &[
        "the way from the master to the second of its two replicas is held up",
        "A acquires with a long lease that counts when one replica has it (WAIT 1); the first replica has it",
        "the master is killed, the second replica is promoted, and the first follows it",
        "B tries to acquire in the same way what A still holds",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply(IN_PROCESS)),
        (&[SetnxExpire, GetSet, BlindDelete], Expected::CannotApply(ASKS_NO_REPLICA)),
        (
            &[Token, TokenWatch, Reentrant],
            Expected::Breaks("WAIT counts replicas, and a failover does not ask which of them had the lock"),
        ),
        (&[Redlock, RedlockFenced], Expected::CannotApply(NO_REPLICAS)),
        (&[Etcd, ZooKeeper], Expected::CannotApply(BY_MAJORITY)),
    ],
    play: |stage| wait_for_one(stage, &[1]).boxed(),
};

/// The last replica is promoted.
async fn wait_for_one(stage: &Stage<'_>, held_up: &[usize]) -> Result<(), Failure> {
    let group = Replicated::start(stage, 2).await?;
    held_up.iter().for_each(|replica| group.hold_up(*replica));
    let careful = Setup::patient().with_replicas(1);
    let a = stage.contender_at("a", &group.servers.place(), careful).await?;
    // Whether it is granted is what the scenario is about.
    drop(a.trying(stage.long())?.outcome().await?);
    group.fail_over_to(stage, 1).await?;
    let place = group.servers.with(&group.replicas[1].server);
    let b = stage.contender_at("b", &place, careful).await?;
    // The replica that follows may be slow, and then nothing is granted.
    b.acquire(stage.long()).await?;
    Ok(())
}

/// redis.io, "Sentinel": "Example 2: basic setup with three boxes", on clients that are with an old master.
pub(super) const SPLIT_BRAIN: Scenario = Scenario {
    id: "S35",
    title: "an old master goes on beside the new one",
    steps: &[
        "A is connected to the master; of Redlock's three servers one is a pair of a master and a replica",
        "the master is stopped, and the replica promoted; of three members of etcd or ZooKeeper the leader is",
        "B acquires with a long lease at the new master",
        "the old master goes on; A, who knows no other, tries to acquire there",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply(IN_PROCESS)),
        (
            ONE_REDIS,
            Expected::Breaks("until somebody tells it, the old master takes itself for the master, and grants"),
        ),
        (
            &[Redlock, RedlockFenced],
            Expected::Holds("the old master's vote is one of three, and the other two are B's"),
        ),
        (&[Etcd, ZooKeeper], Expected::Holds("an old leader finds no majority for anything that A asks")),
    ],
    play: |stage| split_brain(stage, None).boxed(),
};

pub(super) const SPLIT_BRAIN_FENCED: Scenario = Scenario {
    id: "S35+f",
    title: "as S35, and the resource checks fencing tokens",
    steps: &[
        "as in S35 B acquires at the new master, and then A at the old one",
        "A reads the guarded counter; B adds one to it with its token",
        "A writes what it read plus one, with its own, newer token",
    ],
    breaks_by: &[Observable::LostUpdate, Observable::StaleWriteAccepted],
    beside: &[Observable::RawOverlap, Observable::InLeaseOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply(IN_PROCESS)),
        (
            &[SetnxExpire, GetSet, BlindDelete, Redlock],
            Expected::CannotApply("there is no fencing token that the resource could check"),
        ),
        (
            &[Token, TokenWatch, Reentrant],
            Expected::Breaks(
                "both masters mint: a token puts holders in order, and does not keep two from taking turns",
            ),
        ),
        (&[RedlockFenced], Expected::Holds("A gets neither lock nor token, as in S35")),
        (
            &[Etcd, ZooKeeper],
            Expected::CannotApply("it holds in S35, so there are no two whose tokens could be compared"),
        ),
    ],
    play: |stage| split_brain(stage, Some(stage.table(true))).boxed(),
};

async fn split_brain(stage: &Stage<'_>, counter: Option<Resource>) -> Result<(), Failure> {
    if let Store::Etcd | Store::ZooKeeper = stage.kind().store() {
        return split_members(stage).await;
    }
    let pair = Replicated::start(stage, 1).await?;
    let master = &pair.servers.struck.server;
    let a = stage.contender_at("a", &pair.servers.place(), Setup::patient()).await?;
    master.stop()?;
    pair.promote(0)?;
    let place = pair.servers.with(&pair.replicas[0].server);
    let b = stage.contender_at("b", &place, Setup::patient()).await?;
    let other = b.acquire(stage.long()).await?;
    master.cont()?;
    let held = a.try_acquire(stage.long()).await?;
    if let (Some(counter), Some(held)) = (counter, held) {
        let read = a.read(&counter).await?;
        b.increment(&counter, &other).await?;
        a.write(&counter, read + 1, &held).await?;
    }
    Ok(())
}

async fn split_members(stage: &Stage<'_>) -> Result<(), Failure> {
    let members = Members::start(stage)?;
    let old = members.leader(stage).await?;
    let a = stage.contender_at("a", &members.place().only(old), Setup::patient()).await?;
    members.stop(old)?;
    members.leader_after(stage, old).await?;
    let b = stage.contender_at("b", &members.place().without(old), Setup::patient()).await?;
    b.acquire(stage.long()).await?;
    members.cont(old)?;
    // It is refused by a leader that learns that it is none, or waits behind B at a follower.
    match a.acquiring(stage.long(), Duration::from_millis(500))?.outcome().await? {
        Ok(_) | Err(Answer::Error { .. }) => Ok(()),
        Err(other) => Err(format!("A acquires, and the answer is {other:?}").into()),
    }
}

/// A master, struck, with replicas, and a proxy on the way to each of them.
struct Replicated {
    servers: Servers,
    links: Vec<Proxy>,
    replicas: Vec<Clocked<RedisServer>>,
}

impl Replicated {
    /// All replicas follow.
    async fn start(stage: &Stage<'_>, count: usize) -> Result<Self, Failure> {
        // Without it a master waits for 5 s, for others who may want its data too.
        const AT_ONCE: (&str, &str) = ("repl-diskless-sync-delay", "0");

        let servers = Servers::start(stage, &[AT_ONCE])?;
        let master = servers.struck.server.addr();
        let links = (0..count).map(|_| Proxy::start_opaque(master)).collect::<io::Result<Vec<_>>>()?;
        let follow = |link: &Proxy| {
            let at = format!("127.0.0.1 {}", link.addr().port());
            stage.lab.own_redis(&[AT_ONCE, ("replicaof", &at)])
        };
        let replicas = links.iter().map(follow).collect::<Result<_, _>>()?;
        let group = Self { servers, links, replicas };
        followed_by(stage, &group.servers.struck.server, count).await?;
        Ok(group)
    }

    /// What the master writes from now on does not come to this replica.
    fn hold_up(&self, replica: usize) {
        self.links[replica].black_hole();
    }

    /// The master is killed, this replica is promoted, and the others follow it.
    async fn fail_over_to(&self, stage: &Stage<'_>, chosen: usize) -> Result<(), Failure> {
        self.servers.struck.server.kill()?;
        self.promote(chosen)?;
        let master = &self.replicas[chosen].server;
        for (replica, _) in self.replicas.iter().enumerate().filter(|(replica, _)| *replica != chosen) {
            let port = master.port().to_string();
            self.replicas[replica].server.command::<()>(&["REPLICAOF", "127.0.0.1", &port])?;
        }
        followed_by(stage, master, self.replicas.len() - 1).await
    }

    fn promote(&self, replica: usize) -> Result<(), Failure> {
        Ok(self.replicas[replica].server.command(&["REPLICAOF", "NO", "ONE"])?)
    }
}

async fn followed_by(stage: &Stage<'_>, master: &RedisServer, replicas: usize) -> Result<(), Failure> {
    let wanted = replicas.to_string();
    stage.until("the replicas follow", || Ok(master.command::<usize>(&["WAIT", &wanted, "1"])? >= replicas)).await
}
