use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use futures_util::FutureExt;
use lock_testkit::RedisServer;
use lock_testkit::fault::Proxy;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::{ONE_REDIS, Servers};
use crate::lab::{Answer, Place, Setup, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};
use crate::{Failure, Store};

/// Redisson's changelog has "NOSCRIPT after failover" as a fault of its own.
pub(super) const NO_SCRIPTS: Scenario = Scenario {
    id: "S41",
    title: "the servers forget their scripts",
    steps: &[
        "A and B are connected; A acquires with a long lease",
        "SCRIPT FLUSH, as a restart or a failover does; A extends its lease",
        "SCRIPT FLUSH; A releases",
        "SCRIPT FLUSH; B must get the lock",
    ],
    breaks_by: &[Observable::Stuck, Observable::Stolen],
    beside: &[],
    expected: &[
        (&[Memory, Etcd, ZooKeeper], Expected::CannotApply("it sends no scripts")),
        (&[SetnxExpire, GetSet, BlindDelete], Expected::CannotApply("it sends no scripts")),
        (
            &[Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::Holds("a server that answers NOSCRIPT is sent the script itself, for a release too"),
        ),
    ],
    play: |stage| no_scripts(stage).boxed(),
};

async fn no_scripts(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    let held = a.acquire(stage.long()).await?;
    each_redis(stage, |server| Ok(server.command(&["SCRIPT", "FLUSH"])?))?;
    match held.extend(stage.long().ttl()).await? {
        Answer::Renewed { .. } => {}
        other => return Err(format!("A extends its lease, and the answer is {other:?}").into()),
    }
    each_redis(stage, |server| Ok(server.command(&["SCRIPT", "FLUSH"])?))?;
    held.release().await?;
    each_redis(stage, |server| Ok(server.command(&["SCRIPT", "FLUSH"])?))?;
    b.probe(stage.short(), stage.bound()).await
}

pub(super) const SILENT: Scenario = Scenario {
    id: "S42",
    title: "the servers are alive, and do not answer",
    steps: &[
        "A acquires with a short lease that is renewed",
        "every server is stopped (SIGSTOP): connections stay, and nobody answers",
        "A's guard must say \"lost\" by A's own clock; B must be told within its limit that it gets nothing",
        "the servers go on, and find the lease over, but nothing comes to A: a fresh client must get the lock",
        "A looks at its guard once more, and acts if that says \"held\"",
    ],
    breaks_by: &[Observable::InLeaseOverlap, Observable::Stuck],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("there is no server that could fall silent")),
        (ONE_REDIS, Expected::Holds("the deadline needs no answer, every call has a limit, and the ttl has run on")),
        (&[Redlock, RedlockFenced], Expected::Holds("the same, where five are silent")),
        (
            &[Etcd, ZooKeeper],
            Expected::Holds("the deadline needs no answer, and what is not kept alive ends in the store"),
        ),
    ],
    play: |stage| silent(stage).boxed(),
};

async fn silent(stage: &Stage<'_>) -> Result<(), Failure> {
    let place = stage.lab.place(stage.kind().store())?;
    while_unserved(stage, &place, || Standstill::begin(stage)).await
}

/// redis.io, "Redis programmability", "Maximum execution time": one that takes longer is not ended, and others are told.
pub(super) const BUSY: Scenario = Scenario {
    id: "S42busy",
    title: "a script of somebody else does not end, and the servers refuse everything",
    steps: &[
        "A acquires with a short lease that is renewed",
        "on every server somebody runs a script without an end: after 50 ms all others are answered BUSY",
        "A's guard must say \"lost\" by A's own clock; B must be told within its limit that it gets nothing",
        "the scripts are killed, and the lease is over, but nothing comes to A: a fresh client must get the lock",
        "A looks at its guard once more, and acts if that says \"held\"",
    ],
    breaks_by: &[Observable::InLeaseOverlap, Observable::Stuck],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("there is no server")),
        (
            ONE_REDIS,
            Expected::Holds("BUSY says nothing about the lock: the renewal is tried until the deadline, and no longer"),
        ),
        (&[Redlock, RedlockFenced], Expected::Holds("the same, where every node is busy")),
        (&[Etcd, ZooKeeper], Expected::CannotApply("it runs no scripts")),
    ],
    play: |stage| busy(stage).boxed(),
};

async fn busy(stage: &Stage<'_>) -> Result<(), Failure> {
    let servers = Servers::start(stage, &[])?;
    while_unserved(stage, &servers.place(), || Endless::begin(&servers)).await
}

/// `begin` takes the servers away from their clients, until what it returns is dropped.
async fn while_unserved<T>(
    stage: &Stage<'_>,
    place: &Place,
    begin: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    /// How long B is to try.
    const B_LIMIT: Duration = Duration::from_millis(300);

    let a = stage.contender_at("a", place, Setup::frail()).await?;
    let b = stage.contender_at("b", place, Setup::patient()).await?;
    let held = a.acquire(stage.renewed()).await?;
    let unserved = begin()?;
    // What B is told is in the history, and so is each "yes" of A's guard, as something that A acts on.
    let waiting = b.acquiring(stage.long(), B_LIMIT)?;
    stage.pass(stage.short_ttl()).await?;
    held.is_held().await?;
    drop(waiting.outcome().await?);
    // Else A would be told by a late answer, and not by its clock.
    a.proxies().iter().for_each(Proxy::black_hole);
    drop(unserved);
    let prober = stage.contender_at("prober", place, Setup::patient()).await?;
    prober.probe(stage.short(), stage.bound()).await?;
    let third = prober.acquire(stage.long()).await?;
    held.is_held().await?;
    third.release().await?;
    Ok(())
}

/// The servers of a strategy, stopped until this is dropped.
struct Standstill<'a>(&'a Stage<'a>);

impl<'a> Standstill<'a> {
    fn begin(stage: &'a Stage<'a>) -> Result<Self, Failure> {
        let standstill = Self(stage);
        match stage.kind().store() {
            Store::Process => {}
            Store::Redis | Store::Nodes => each_redis(stage, |server| Ok(server.stop()?))?,
            Store::Etcd => stage.lab.etcd()?.member(0).stop()?,
            Store::ZooKeeper => stage.lab.zookeeper()?.stop(0)?,
        }
        Ok(standstill)
    }

    fn end(&self) -> Result<(), Failure> {
        let Self(stage) = self;
        match stage.kind().store() {
            Store::Process => {}
            Store::Redis | Store::Nodes => each_redis(stage, |server| Ok(server.cont()?))?,
            Store::Etcd => stage.lab.etcd()?.member(0).cont()?,
            Store::ZooKeeper => stage.lab.zookeeper()?.cont(0)?,
        }
        Ok(())
    }
}

impl Drop for Standstill<'_> {
    fn drop(&mut self) {
        // A server that could not be continued is seen by whoever comes next.
        drop(self.end());
    }
}

/// A script without an end on each of these servers, until this is dropped.
struct Endless<'a> {
    servers: &'a Servers,
    _scripts: Vec<TcpStream>,
}

impl<'a> Endless<'a> {
    fn begin(servers: &'a Servers) -> Result<Self, Failure> {
        let begin = |server: &RedisServer| {
            // Redis 7 has another name for it, and knows this one.
            server.command::<()>(&["CONFIG", "SET", "lua-time-limit", "50"])?;
            let mut connection = TcpStream::connect(server.addr())?;
            connection.write_all(b"EVAL 'while true do end' 0\r\n")?;
            Ok::<_, Failure>(connection)
        };
        let scripts = servers.all().map(|server| begin(&server.server)).collect::<Result<_, _>>()?;
        Ok(Self { servers, _scripts: scripts })
    }
}

impl Drop for Endless<'_> {
    fn drop(&mut self) {
        // The servers are the scenario's own: one that stays busy fails the next step, and goes with it.
        self.servers.all().for_each(|server| drop(server.server.command::<()>(&["SCRIPT", "KILL"])));
    }
}

/// Does something to each Redis of the strategy.
fn each_redis(stage: &Stage<'_>, act: impl Fn(&RedisServer) -> Result<(), Failure>) -> Result<(), Failure> {
    if stage.kind().store() == Store::Redis {
        return act(&stage.lab.redis().server);
    }
    stage.lab.nodes()?.iter().try_for_each(|node| act(&node.server))
}
