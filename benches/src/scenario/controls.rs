//! The controls: what must hold, or the lab itself is at fault.

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use lock_core::Lease;
use lock_testkit::RedisServer;
use lock_testkit::fault::{Armed, Request};
use lock_testkit::history::Observable;

use super::{Expected, Scenario};
use crate::Failure;
use crate::lab::{Answer, Client, Contender, PATIENCE, Place, Resource, Setup, Stage};
use crate::strategy::Kind::{
    self, BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch,
    ZooKeeper,
};

pub(super) const ALL: &[Scenario] = &[NO_FAULT, FAILOVER, LATE_MAJORITY];

const NO_FAULT: Scenario = Scenario {
    id: "C1",
    title: "three contend for a counter, and nothing is at fault",
    steps: &[
        "A, B and C each acquire, read the counter, write it one greater, and release: five times",
        "the counter is read: it is fifteen, and no two ever held at once",
    ],
    breaks_by: &[Observable::InLeaseOverlap, Observable::LostUpdate],
    beside: &[],
    expected: &[(&Kind::ALL, Expected::Holds("without a fault every strategy excludes"))],
    play: |stage| no_fault(stage).boxed(),
};

async fn no_fault(stage: &Stage<'_>) -> Result<(), Failure> {
    const ROUNDS: u64 = 5;

    // The table of a process has all its clients in that process.
    let mut processes = vec![stage.contender("a").await?];
    let mut clients = vec![(*processes[0]).clone()];
    for name in ["b", "c"] {
        if stage.kind() == Memory {
            clients.push(processes[0].client(name).await?);
        } else {
            let process: Contender = stage.contender(name).await?;
            clients.push((*process).clone());
            processes.push(process);
        }
    }
    let counter = stage.table(false);
    try_join_all(clients.iter().map(|client| count(client, &counter, ROUNDS, stage.long()))).await?;
    let counted = clients[0].read(&counter).await?;
    if counted != ROUNDS * 3 {
        return Err(format!(
            "the counter stands at {counted} after fifteen increments, and the history does not say why"
        )
        .into());
    }
    Ok(())
}

async fn count(client: &Client, counter: &Resource, rounds: u64, lease: Lease) -> Result<(), Failure> {
    for _ in 0..rounds {
        let held = client.acquire(lease).await?;
        client.increment(counter, &held).await?;
        held.release().await?;
    }
    Ok(())
}

const FAILOVER: Scenario = Scenario {
    id: "C2",
    title: "an administrator has the replica take over, in order",
    steps: &[
        "A acquires with a long lease at a Redis that has a replica",
        "FAILOVER: the master stops writing, waits until the replica has everything, and hands over",
        "B, at the new master, tries to acquire what A still holds",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("the lock is in one process")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant],
            Expected::Holds("the new master has everything that the old one had answered"),
        ),
        (&[Redlock, RedlockFenced], Expected::CannotApply("its servers have no replicas")),
        (&[Etcd, ZooKeeper], Expected::CannotApply("its members agree on each entry before it is answered")),
    ],
    play: |stage| failover(stage).boxed(),
};

async fn failover(stage: &Stage<'_>) -> Result<(), Failure> {
    // Else a replica waits five seconds for others before it gets its first copy.
    let at_once = ("repl-diskless-sync-delay", "0");
    let master = stage.lab.own_redis(&[at_once])?.server;
    let replica = stage.lab.own_redis(&[at_once])?.server;
    let (host, port) = (master.addr().ip().to_string(), master.port().to_string());
    replica.command::<()>(&["REPLICAOF", &host, &port])?;
    let says = |server: &RedisServer, what: &str| {
        server.command::<String>(&["INFO", "replication"]).map(|info| info.contains(what))
    };
    stage.until("the replica has its copy", || Ok(says(&replica, "master_link_status:up")?)).await?;

    let a = stage.contender_at("a", &Place::redis(&[&master]), Setup::patient()).await?;
    a.acquire(stage.long()).await?;
    // The replica says what it has once a second, unless it is asked.
    master.command::<u64>(&["WAIT", "1", "10000"])?;
    master.command::<()>(&["FAILOVER"])?;
    stage.until("the replica is the master", || Ok(says(&replica, "role:master")?)).await?;
    let b = stage.contender_at("b", &Place::redis(&[&replica]), Setup::patient()).await?;
    b.try_acquire(stage.long()).await?;
    Ok(())
}

const LATE_MAJORITY: Scenario = Scenario {
    id: "C3",
    title: "the answers of a majority come when the lease is already over",
    steps: &[
        "A tries to acquire with a short lease; all nodes grant, and their replies are held in the network",
        "the lease ends in the store; B acquires",
        "the replies go on their way: A counts from the send, and knows that it has nothing",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("a call of a function has no reply that could be late")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Etcd, ZooKeeper],
            Expected::CannotApply("it asks no majority; S06 holds the one reply"),
        ),
        (&[Redlock, RedlockFenced], Expected::Holds("the validity is what is left since the first request was sent")),
    ],
    play: |stage| late_majority(stage).boxed(),
};

async fn late_majority(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    let late: Vec<_> =
        a.proxies().iter().map(|proxy| proxy.when(Request::any().with_part(&stage.key)).hold_reply()).collect();
    let mut trying = a.acquiring(stage.short(), PATIENCE)?;
    for held in &late {
        held.seen().await;
    }
    let other = b.acquire(stage.long()).await?;
    let asked = || -> u64 { a.proxies().iter().map(|proxy| proxy.count("EVALSHA")).sum() };
    let asked_before = asked();
    late.iter().for_each(Armed::release);
    // Either it holds, or it gives back what it has of this round, and goes on trying while B holds.
    stage.until("A has decided", || Ok(trying.is_answered() || asked() > asked_before)).await?;
    trying.cancel().await?;
    match other.release().await? {
        Answer::Released => Ok(()),
        answer => Err(format!("B releases, and the answer is {answer:?}").into()),
    }
}
