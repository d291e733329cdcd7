//! The server refuses writes.

use std::fs;
use std::path::{Path, PathBuf};

use futures_util::FutureExt;
use lock_testkit::fault::Request;
use lock_testkit::history::Observable;
use lock_testkit::{EtcdCluster, RedisServer};
use redis::RedisResult;

use super::super::{Expected, Scenario};
use super::hold_often;
use crate::lab::{Clocked, Contender, Place, Setup, Stage};
use crate::stores::NODES;
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};
use crate::tell::act;
use crate::{Failure, Store};

pub(super) const FULL: Scenario = Scenario {
    id: "S26a",
    title: "the server is full and evicts nothing, and a lock is released",
    steps: &[
        "A acquires with a long lease (where one owner may hold a lock more than once, A holds it twice)",
        "the server is full: whatever could need memory is refused (`maxmemory`, `noeviction`; on etcd the alarm NOSPACE)",
        "A releases, and is killed when it has an answer, so that nothing repeats what was refused",
        "there is room again: a fresh client must get the lock, long before A's lease would have ended",
    ],
    breaks_by: &[Observable::Stuck],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("there is no server")),
        (
            &[SetnxExpire, GetSet, BlindDelete],
            Expected::Holds("GET and DEL are let through, because they need no memory"),
        ),
        (
            &[Token, TokenWatch, Redlock, RedlockFenced],
            Expected::Holds("no command of the release is one that a full server refuses"),
        ),
        (
            &[Reentrant],
            Expected::Holds(
                "SREM goes before HINCRBY: a script that has written may go on (Redisson's begins with HINCRBY)",
            ),
        ),
        (&[Etcd], Expected::Holds("a full etcd refuses what puts, and lets deletions through")),
        (&[ZooKeeper], Expected::CannotApply("it has no quota to fill; one whose disk is full ends")),
    ],
    play: |stage| full(stage).boxed(),
};

async fn full(stage: &Stage<'_>) -> Result<(), Failure> {
    if stage.kind() == Etcd {
        let etcd = EtcdCluster::start()?;
        let alarm = |action: &str| {
            let alarm = serde_json::json!({ "action": action, "alarm": "NOSPACE", "memberID": 0 });
            etcd.call("/v3/maintenance/alarm", &alarm).map(drop)
        };
        return release_full(stage, &Place::etcd(&etcd), || Ok(alarm("ACTIVATE")?), || Ok(alarm("DEACTIVATE")?)).await;
    }
    let own = Own::start(stage, &[])?;
    let limit = |bytes| own.each(|server| Ok(server.command(&["CONFIG", "SET", "maxmemory", bytes])?));
    release_full(stage, &own.place, || limit("1"), || limit("0")).await
}

async fn release_full(
    stage: &Stage<'_>,
    place: &Place,
    fill: impl FnOnce() -> Result<(), Failure>,
    empty: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let a = stage.contender_at("a", place, Setup::patient()).await?;
    let holds = hold_often(stage, &a).await?;
    fill()?;
    for held in &holds {
        held.release().await?;
    }
    a.kill()?;
    empty()?;
    stage.contender_at("prober", place, Setup::patient()).await?.probe(stage.short(), stage.bound()).await
}

const IN_TIME: &str = "a renewal that is refused moves no deadline: A's guard is lost in time, and says so";

pub(super) const CANNOT_SAVE: Scenario = Scenario {
    id: "S26b",
    title: "the server cannot save its data, and refuses every write",
    steps: &[
        "A acquires with a lease that is renewed",
        "a snapshot fails, so the server refuses writes (MISCONF), renewals too",
        "A's lease ends, and A's guard must say so",
        "the server saves again; B acquires",
        "A acts as its guard lets it",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("there is no server")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::Holds(IN_TIME),
        ),
        (
            &[Etcd, ZooKeeper],
            Expected::CannotApply("it writes its log before it answers, and ends when it cannot; that is S42"),
        ),
    ],
    play: |stage| cannot_save(stage).boxed(),
};

async fn cannot_save(stage: &Stage<'_>) -> Result<(), Failure> {
    const DUMP: &str = "blocked.rdb";

    let own = Own::start(stage, &[("dbfilename", DUMP), ("save", "3600 1")])?;
    let refuse = async |_: &Contender| {
        own.each(|server| {
            // Nothing can be renamed over a folder that is not empty, by no user.
            act("the server cannot write its snapshot");
            fs::create_dir_all(dump(server, DUMP)?.join("in-the-way"))?;
            Ok(server.command(&["BGSAVE"])?)
        })?;
        own.refuse(stage, WRITE, "MISCONF").await
    };
    let heal = || {
        own.each(|server| {
            fs::remove_dir_all(dump(server, DUMP)?)?;
            // Without points to save at, a snapshot that has failed is no reason to refuse.
            Ok(server.command(&["CONFIG", "SET", "save", ""])?)
        })
    };
    lose_while_refused(stage, &own, refuse, heal).await
}

fn dump(server: &RedisServer, name: &str) -> Result<PathBuf, Failure> {
    let (_, folder): (String, String) = server.command(&["CONFIG", "GET", "dir"])?;
    Ok(Path::new(&folder).join(name))
}

pub(super) const NO_MASTER: Scenario = Scenario {
    id: "S26c",
    title: "the server becomes a replica, which takes no writes, and then loses its master",
    steps: &[
        "A acquires with a lease that is renewed",
        "the server is made a replica: it refuses writes (READONLY), renewals too",
        "its master is away and it may not serve what is stale: now it refuses reads, too (MASTERDOWN)",
        "A's lease ends, and A's guard must say so",
        "the server is made a master again; B acquires",
        "A acts as its guard lets it",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("there is no server")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::Holds(IN_TIME),
        ),
        (&[Etcd, ZooKeeper], Expected::CannotApply("whichever member is asked, the leader decides")),
    ],
    play: |stage| no_master(stage).boxed(),
};

async fn no_master(stage: &Stage<'_>) -> Result<(), Failure> {
    let own = Own::start(stage, &[])?;
    let serve_stale =
        |served| own.each(|server| Ok(server.command(&["CONFIG", "SET", "replica-serve-stale-data", served])?));
    let refuse = async |a: &Contender| {
        // Nobody listens at this port.
        own.each(|server| Ok(server.command(&["REPLICAOF", "127.0.0.1", "1"])?))?;
        own.refuse(stage, WRITE, "READONLY").await?;
        let renewal = a.proxy().when(Request::any().with_part(&stage.key)).hold_reply();
        renewal.seen().await;
        drop(renewal);
        serve_stale("no")?;
        own.refuse(stage, &["GET", "is-it-refused"], "MASTERDOWN").await
    };
    let heal = || {
        serve_stale("yes")?;
        own.each(|server| Ok(server.command(&["REPLICAOF", "NO", "ONE"])?))
    };
    lose_while_refused(stage, &own, refuse, heal).await
}

/// A loses a renewed lock, because every server refuses its renewals.
async fn lose_while_refused(
    stage: &Stage<'_>,
    own: &Own,
    refuse: impl AsyncFnOnce(&Contender) -> Result<(), Failure>,
    heal: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let a = stage.contender_at("a", &own.place, Setup::patient()).await?;
    let b = stage.contender_at("b", &own.place, Setup::patient()).await?;
    let held = a.acquire(stage.renewed()).await?;
    refuse(&a).await?;
    // A guard that never says so is found out below.
    if let Ok(lost) = tokio::time::timeout(stage.short_ttl() * 3, held.lost()).await {
        lost?;
    }
    heal()?;
    let other = b.acquire(stage.long()).await?;
    held.is_held().await?;
    other.release().await?;
    Ok(())
}

const WRITE: &[&str] = &["SET", "is-it-refused", "1", "PX", "1"];

/// The Redis servers of one cell, whose settings it may change.
struct Own {
    servers: Vec<Clocked<RedisServer>>,
    place: Place,
}

impl Own {
    fn start(stage: &Stage<'_>, config: &[(&str, &str)]) -> Result<Self, Failure> {
        let nodes = stage.kind().store() == Store::Nodes;
        let count = if nodes { NODES } else { 1 };
        let servers: Vec<_> = (0..count).map(|_| stage.lab.own_redis(config)).collect::<Result<_, _>>()?;
        let addressed: Vec<_> = servers.iter().map(|own| &own.server).collect();
        let place = if nodes { Place::nodes(&addressed) } else { Place::redis(&addressed) };
        Ok(Self { servers, place })
    }

    fn each(&self, mut act: impl FnMut(&RedisServer) -> Result<(), Failure>) -> Result<(), Failure> {
        self.servers.iter().try_for_each(|own| act(&own.server))
    }

    /// Waits until each refuses this command with this code.
    async fn refuse(&self, stage: &Stage<'_>, command: &[&str], code: &str) -> Result<(), Failure> {
        let refuses = |own: &Clocked<RedisServer>| {
            let answer: RedisResult<()> = own.server.command(command);
            answer.is_err_and(|error| error.code() == Some(code))
        };
        stage.until(code, || Ok(self.servers.iter().all(refuses))).await
    }
}
