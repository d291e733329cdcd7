use std::time::Duration;

use futures_util::FutureExt;
use lock_core::Lease;
use lock_testkit::RedisServer;
use lock_testkit::fault::Proxy;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use crate::lab::{Clocked, Contender, Place, Resource, Setup, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};
use crate::tell::act;
use crate::{Failure, Store};

/// How long the holder may act; no request of it comes in between.
const LEASE: Lease = Lease::fixed(Duration::from_secs(60));

/// redis/redis#416 and valkey-io/valkey#2651, both open: expiry goes by the wall clock.
pub(super) const FORWARD: Scenario = Scenario {
    id: "S13",
    title: "the server's wall clock jumps forward",
    steps: &[
        "A acquires with a lease of a minute",
        "the wall clock of the server (of Redlock's five: of one) jumps forward by two minutes",
        "B tries to acquire what A still holds",
        "A looks at its guard, and acts if that says \"held\"",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("there is no server")),
        (
            &[SetnxExpire, BlindDelete, Token, TokenWatch, Reentrant],
            Expected::Breaks("Redis keeps the end of a key as a time of its wall clock, and finds that it has passed"),
        ),
        (&[GetSet], Expected::Holds("the key has no ttl; its stamp is compared with clients' clocks")),
        (&[Redlock, RedlockFenced], Expected::Holds("one node of five is a minority; S15 gives it the deciding vote")),
        (
            &[Etcd],
            Expected::CannotApply(
                "it ends leases by its monotonic clock; this lab cannot set a program in Go its wall clock",
            ),
        ),
        (&[ZooKeeper], Expected::CannotApply("it ends sessions by its monotonic clock: S16 shows it")),
    ],
    play: |stage| forward(stage).boxed(),
};

async fn forward(stage: &Stage<'_>) -> Result<(), Failure> {
    let (servers, place) = servers(stage)?;
    let a = stage.contender_at("a", &place, Setup::patient()).await?;
    let b = stage.contender_at("b", &place, Setup::patient()).await?;
    let held = a.acquire(LEASE).await?;
    act("the first server's wall clock is set two minutes ahead");
    servers[0].clock.step_wall_forward(Duration::from_secs(120))?;
    b.try_acquire(stage.long()).await?;
    held.is_held().await?;
    Ok(())
}

pub(super) const BACK: Scenario = Scenario {
    id: "S14",
    title: "the server's wall clock jumps back",
    steps: &[
        "A acquires with a short lease, and is killed",
        "the wall clock of the server (of Redlock's five: of one) jumps back by four minutes",
        "a minute later, long after every lease, a fresh client wants the lock",
    ],
    breaks_by: &[Observable::Stuck],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("there is no server")),
        (
            &[SetnxExpire, BlindDelete, Token, TokenWatch, Reentrant],
            Expected::Breaks("the end of the key, a time of the server's wall clock, is four minutes farther away"),
        ),
        (&[GetSet], Expected::Holds("the key has no ttl; its stamp is compared with clients' clocks")),
        (&[Redlock, RedlockFenced], Expected::Holds("the other four of five are a majority")),
        (
            &[Etcd],
            Expected::CannotApply(
                "it ends leases by its monotonic clock; this lab cannot set a program in Go its wall clock",
            ),
        ),
        (&[ZooKeeper], Expected::CannotApply("it ends sessions by its monotonic clock: S16 shows it")),
    ],
    play: |stage| back(stage).boxed(),
};

async fn back(stage: &Stage<'_>) -> Result<(), Failure> {
    let (servers, place) = servers(stage)?;
    let a = stage.contender_at("a", &place, Setup::patient()).await?;
    a.acquire(stage.short()).await?;
    a.kill()?;
    act("the first server's wall clock is set four minutes back");
    servers[0].clock.step_wall_back(Duration::from_secs(240))?;
    stage.probe_long_after_at(&place).await
}

/// Kleppmann, "How to do distributed locking" (2016), "Using time to solve consensus".
pub(super) const ONE_NODE: Scenario = Scenario {
    id: "S15",
    title: "the clock of the one node jumps that two majorities share",
    steps: &[
        "of five nodes A reaches 1, 2 and 3, and B reaches 3, 4 and 5",
        "A acquires with a lease of a minute on 1, 2 and 3; B begins to wait: node 3 refuses it",
        "the wall clock of node 3 jumps forward by two minutes",
        "node 3 has forgotten A: B has 3, 4 and 5",
        "A looks at its guard, and acts if that says \"held\"",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (
            &[Memory, SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Etcd, ZooKeeper],
            Expected::CannotApply("it asks no majority of independent servers; S13 is this fault with one"),
        ),
        (
            &[Redlock, RedlockFenced],
            Expected::Breaks("two majorities share one node at least, and that gives its vote twice"),
        ),
    ],
    play: |stage| one_node(stage, None).boxed(),
};

pub(super) const ONE_NODE_FENCED: Scenario = Scenario {
    id: "S15+f",
    title: "as S15, and the resource checks fencing tokens",
    steps: &[
        "of five nodes A reaches 1, 2 and 3, and B reaches 3, 4 and 5",
        "A acquires with a lease of a minute, and reads the guarded counter; B begins to wait",
        "the wall clock of node 3 jumps forward by two minutes, and B has the lock beside A",
        "B adds one to the counter with its token; A writes with its own, older token: the resource refuses it",
    ],
    breaks_by: &[Observable::StaleWriteAccepted, Observable::LostUpdate],
    beside: &[Observable::RawOverlap, Observable::InLeaseOverlap],
    expected: &[
        (
            &[Memory, SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Etcd, ZooKeeper],
            Expected::CannotApply("it asks no majority of independent servers; S13 is this fault with one"),
        ),
        (&[Redlock], Expected::CannotApply("there is no fencing token that the resource could check")),
        (
            &[RedlockFenced],
            Expected::Holds(
                "node 3 keeps its last token for a day, and its clock has gone forward: B's token is greater",
            ),
        ),
    ],
    play: |stage| one_node(stage, Some(stage.table(true))).boxed(),
};

async fn one_node(stage: &Stage<'_>, counter: Option<Resource>) -> Result<(), Failure> {
    let (nodes, place) = servers(stage)?;
    let a = stage.contender_at("a", &place, Setup::patient()).await?;
    let b = stage.contender_at("b", &place, Setup::patient()).await?;
    cut_off(&a, 3..5);
    cut_off(&b, 0..2);
    let held = a.acquire(LEASE).await?;
    let read = match &counter {
        Some(counter) => a.read(counter).await?,
        None => 0,
    };
    if b.try_acquire(stage.long()).await?.is_some() {
        return Err("B has the lock before anything has happened".into());
    }
    act("the third server's wall clock is set two minutes ahead");
    nodes[2].clock.step_wall_forward(Duration::from_secs(120))?;
    // Its first round may still be undone meanwhile, so it waits.
    let other = b.acquire(stage.long()).await?;
    if let Some(counter) = &counter {
        b.increment(counter, &other).await?;
        a.write(counter, read + 1, &held).await?;
    }
    held.is_held().await?;
    Ok(())
}

fn cut_off(contender: &Contender, nodes: std::ops::Range<usize>) {
    for proxy in &contender.proxies()[nodes] {
        proxy.refuse_connections();
        Proxy::cut_connections(proxy);
    }
}

/// Redis servers of the scenario's own, as many as the strategy asks: a clock that has jumped is not set back.
fn servers(stage: &Stage<'_>) -> Result<(Vec<Clocked<RedisServer>>, Place), Failure> {
    let is_one = stage.kind().store() == Store::Redis;
    let count = if is_one { 1 } else { crate::stores::NODES };
    let servers = (0..count).map(|_| stage.lab.own_redis(&[])).collect::<Result<Vec<_>, _>>()?;
    let all: Vec<_> = servers.iter().map(|server| &server.server).collect();
    let place = if is_one { Place::redis(&all) } else { Place::nodes(&all) };
    Ok((servers, place))
}
