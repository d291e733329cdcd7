use futures_util::FutureExt;
use lock_testkit::RedisServer;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::{ONE_REDIS, Servers, newcomer};
use crate::lab::{Answer, PATIENCE, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};
use crate::{Failure, Store};

const NO_EVICTION: &str = "a full etcd refuses to write, and ZooKeeper ends; neither throws away what it was given";

/// redis.io, "Key eviction".
pub(super) const EVICT_VOLATILE: Scenario = Scenario {
    id: "S39",
    title: "a full Redis evicts what has a ttl",
    steps: &[
        "A acquires with a long lease; of Redlock's three servers it has reached two",
        "on the server (of Redlock's, one of A's two) the policy is volatile-lru",
        "others write there until it is full and has nothing more to evict",
        "the server gets more memory; B, who reaches every server, tries to acquire what A still holds",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("the table in the process evicts nothing")),
        (
            &[SetnxExpire, BlindDelete, Token, TokenWatch, Reentrant],
            Expected::Breaks("a lock is a key with a ttl: this policy takes locks first"),
        ),
        (&[GetSet], Expected::Holds("its entry has no ttl, so this policy never takes it")),
        (&[Redlock, RedlockFenced], Expected::Breaks("the one server that both majorities share has evicted its vote")),
        (&[Etcd, ZooKeeper], Expected::CannotApply(NO_EVICTION)),
    ],
    play: |stage| evict(stage, "volatile-lru").boxed(),
};

pub(super) const EVICT_ANY: Scenario = Scenario {
    id: "S39any",
    title: "a full Redis evicts any key",
    steps: &[
        "A acquires with a long lease; of Redlock's three servers it has reached two",
        "on the server (of Redlock's, one of A's two) the policy is allkeys-lru",
        "others write there until it is full and all that belongs to the lock is evicted",
        "the server gets more memory; B, who reaches every server, tries to acquire what A still holds",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("the table in the process evicts nothing")),
        (ONE_REDIS, Expected::Breaks("the server takes a lock for a cached value that could be made again")),
        (&[Redlock, RedlockFenced], Expected::Breaks("the one server that both majorities share has evicted its vote")),
        (&[Etcd, ZooKeeper], Expected::CannotApply(NO_EVICTION)),
    ],
    play: |stage| evict(stage, "allkeys-lru").boxed(),
};

async fn evict(stage: &Stage<'_>, policy: &str) -> Result<(), Failure> {
    let servers = Servers::start(stage, &[("maxmemory-policy", policy)])?;
    let server = &servers.struck.server;
    let _a = servers.holder(stage).await?;
    server.command::<()>(&["CONFIG", "SET", "maxmemory", &(used_memory(server)? + 200_000).to_string()])?;
    let until = stage.lab.clocks().lab_now()? + PATIENCE;
    let mut others = 0_u32;
    while fill(server, others)? && !stage.keys_on(server)?.is_empty() {
        others += 1;
        if stage.lab.clocks().lab_now()? > until {
            return Err(format!("{others} others were written, and {:?} are there", stage.keys_on(server)?).into());
        }
    }
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "0"])?;
    newcomer(stage, &servers.place()).await
}

fn used_memory(server: &RedisServer) -> Result<u64, Failure> {
    let info: String = server.command(&["INFO", "memory"])?;
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    Ok(used.ok_or("this Redis does not say how much memory it uses")?.trim().parse()?)
}

/// Writes something big; whether the server took it.
fn fill(server: &RedisServer, number: u32) -> Result<bool, Failure> {
    match server.command::<()>(&["SET", &format!("other:{number}"), &"x".repeat(10_000)]) {
        Ok(()) => Ok(true),
        Err(error) if error.code() == Some("OOM") => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(super) const FLUSH: Scenario = Scenario {
    id: "S40",
    title: "an administrator removes the data",
    steps: &[
        "A acquires with a long lease",
        "an administrator removes the lock: FLUSHALL on every Redis; the lock's own entry on etcd and ZooKeeper",
        "B tries to acquire what A still holds",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("nobody reaches into the process")),
        (
            ONE_REDIS,
            Expected::Breaks(
                "the server knows nothing of A any more, and A nothing of that: only a renewal would tell it",
            ),
        ),
        (&[Redlock, RedlockFenced], Expected::Breaks("a majority does not help if all are told to forget")),
        (
            &[Etcd, ZooKeeper],
            Expected::Breaks("consensus keeps what it is told, and so it does if it is told to delete"),
        ),
    ],
    play: |stage| flush(stage).boxed(),
};

async fn flush(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    a.acquire(stage.long()).await?;
    match stage.kind().store() {
        Store::Process => {}
        Store::Redis => stage.lab.redis().server.command::<()>(&["FLUSHALL"])?,
        Store::Nodes => stage.lab.nodes()?.iter().try_for_each(|node| node.server.command::<()>(&["FLUSHALL"]))?,
        Store::Etcd | Store::ZooKeeper => match b.force_release().await? {
            Answer::Released => {}
            other => return Err(format!("the administrator is answered {other:?}").into()),
        },
    }
    if let Some(other) = b.try_acquire(stage.long()).await? {
        other.release().await?;
    }
    Ok(())
}
