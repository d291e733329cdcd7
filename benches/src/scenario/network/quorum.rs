use std::ops::Range;

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use lock_testkit::RedisServer;
use lock_testkit::fault::{Armed, Proxy};
use lock_testkit::history::Observable;

use super::super::acquire::takes_the_lock;
use super::super::{Expected, Scenario};
use super::acquainted;
use crate::Failure;
use crate::lab::{Clocked, PATIENCE, Stage};
use crate::strategy::Kind::{
    self, BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch,
    ZooKeeper,
};

/// Those for whom the faults of a quorum of independent servers are none.
const NO_QUORUM: &[Kind] = &[Memory, SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Etcd, ZooKeeper];

/// redis.io, "Distributed Locks with Redis", "Retry on Failure".
pub(super) const SPLIT_VOTE: Scenario = Scenario {
    id: "S44",
    title: "three clients share out five votes, and nobody has a majority",
    steps: &[
        "A, B and C try at the same time: A comes first to nodes 1 and 2, B to 3 and 4, C to 5",
        "then each comes to the other nodes, and is refused there",
        "all three go on trying: each must get the lock in its turn",
    ],
    breaks_by: &[Observable::InLeaseOverlap, Observable::Stuck],
    beside: &[Observable::RawOverlap],
    expected: &[
        (NO_QUORUM, Expected::CannotApply("one store decides who comes first, so there are no votes to share out")),
        (
            &[Redlock, RedlockFenced],
            Expected::Holds("who has no majority gives its votes back, and tries again at a random time"),
        ),
    ],
    play: |stage| split_vote(stage).boxed(),
};

async fn split_vote(stage: &Stage<'_>) -> Result<(), Failure> {
    const FIRST: [&[usize]; 3] = [&[0, 1], &[2, 3], &[4]];

    let clients = [acquainted(stage, "a").await?, acquainted(stage, "b").await?, acquainted(stage, "c").await?];
    let late = clients.iter().zip(FIRST).flat_map(|(client, first)| {
        let others = client.proxies().iter().enumerate().filter(|(node, _)| !first.contains(node));
        others.map(|(_, proxy)| proxy.when(takes_the_lock(stage)).hold_request())
    });
    let late: Vec<_> = late.collect();
    let trying = clients.iter().map(|client| client.trying(stage.long())).collect::<Result<Vec<_>, _>>()?;
    for late in &late {
        late.seen().await;
    }
    voted(stage, 0..5).await?;
    late.iter().for_each(Armed::release);
    for trying in trying {
        // One that gave its votes back early may have let another win.
        if let Ok(held) = trying.outcome().await? {
            held.release().await?;
        }
    }
    try_join_all(clients.iter().map(|client| client.probe(stage.short(), stage.bound()))).await?;
    Ok(())
}

pub(super) const MINORITY: Scenario = Scenario {
    id: "S44minority",
    title: "a client reaches two nodes of five",
    steps: &[
        "nothing passes between A and nodes 1, 2 and 3",
        "A tries to acquire with a long lease: it must be told within its limits that it has nothing",
        "B, who reaches all five, acquires and releases",
        "the network heals, and what A sent arrives, late: a fresh client must get the lock at once",
    ],
    breaks_by: &[Observable::InLeaseOverlap, Observable::Stuck],
    beside: &[Observable::RawOverlap],
    expected: &[
        (NO_QUORUM, Expected::CannotApply("it asks no majority of independent servers")),
        (
            &[Redlock, RedlockFenced],
            Expected::Holds(
                "each node has a limit, and a lost round is undone on every node, the silent ones included",
            ),
        ),
    ],
    play: |stage| minority(stage).boxed(),
};

async fn minority(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (acquainted(stage, "a").await?, stage.contender("b").await?);
    a.proxies()[..3].iter().for_each(Proxy::black_hole);
    // Whether it is granted is what the scenario is about.
    drop(a.trying(stage.long())?.outcome().await?);
    b.acquire(stage.long()).await?.release().await?;
    a.proxies()[..3].iter().for_each(Proxy::heal);
    stage.probe().await
}

/// What it takes for this to break is S15 and S36: the shared node forgets.
pub(super) const SHARED_NODE: Scenario = Scenario {
    id: "S45",
    title: "two clients reach majorities that share one node",
    steps: &[
        "of five nodes A reaches 1, 2 and 3, and B reaches 3, 4 and 5",
        "A acquires with a long lease on 1, 2 and 3",
        "B tries: 4 and 5 give it their votes, and 3 refuses it",
        "A releases; B must get the lock",
    ],
    breaks_by: &[Observable::InLeaseOverlap, Observable::Stuck],
    beside: &[Observable::RawOverlap],
    expected: &[
        (NO_QUORUM, Expected::CannotApply("it asks no majority of independent servers")),
        (
            &[Redlock, RedlockFenced],
            Expected::Holds("any two majorities share a node, and as long as that one keeps its word B is refused"),
        ),
    ],
    play: |stage| shared_node(stage).boxed(),
};

async fn shared_node(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    a.proxies()[3..].iter().for_each(Proxy::black_hole);
    b.proxies()[..2].iter().for_each(Proxy::black_hole);
    let held = a.acquire(stage.long()).await?;
    // Refused by one, and not heard by two: it may be told either.
    if let Ok(other) = b.trying(stage.long())?.outcome().await? {
        other.release().await?;
    }
    held.release().await?;
    b.probe(stage.short(), stage.bound()).await
}

pub(super) const CANCELLED: Scenario = Scenario {
    id: "S49",
    title: "an acquire is cancelled when two of five nodes have it",
    steps: &[
        "A acquires with a long lease; nodes 1 and 2 give it their votes, its requests to the others are under way",
        "A's caller drops the future",
        "the three requests arrive; a fresh client must get the lock long before A's lease would be over",
    ],
    breaks_by: &[Observable::Stuck],
    beside: &[],
    expected: &[
        (NO_QUORUM, Expected::CannotApply("its acquire is one request; S54 cancels that")),
        (
            &[Redlock, RedlockFenced],
            Expected::Holds("the round is run to its end and undone on every node, whoever waits for it"),
        ),
    ],
    play: |stage| cancelled(stage).boxed(),
};

async fn cancelled(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = acquainted(stage, "a").await?;
    let late = a.proxies()[2..].iter().map(|proxy| proxy.when(takes_the_lock(stage)).hold_request());
    let late: Vec<_> = late.collect();
    let acquiring = a.acquiring(stage.long(), PATIENCE)?;
    for late in &late {
        late.seen().await;
    }
    voted(stage, 0..2).await?;
    acquiring.cancel().await?;
    late.iter().for_each(Armed::release);
    stage.probe().await
}

/// Waits until each of these nodes has given its vote to somebody.
async fn voted(stage: &Stage<'_>, nodes: Range<usize>) -> Result<(), Failure> {
    let nodes = &stage.lab.nodes()?[nodes];
    let has_voted = |node: &Clocked<RedisServer>| Ok::<_, Failure>(!stage.keys_on(&node.server)?.is_empty());
    stage.until("the nodes have voted", || nodes.iter().try_fold(true, |all, node| Ok(all && has_voted(node)?))).await
}
