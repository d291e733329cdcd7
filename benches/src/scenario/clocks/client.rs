use std::time::Duration;

use futures_util::FutureExt;
use lock_testkit::fault::{Armed, Request};
use lock_testkit::history::Observable;

use super::super::acquire::takes_the_lock;
use super::super::{Expected, Scenario};
use crate::Failure;
use crate::lab::Stage;
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};
use crate::tell::act;

pub(super) const FAST_CLIENT: Scenario = Scenario {
    id: "S11",
    title: "a client's wall clock is fast",
    steps: &[
        "A acquires with a long lease",
        "B's wall clock is a minute ahead: by it A's lease is long over",
        "B tries to acquire what A still holds",
        "A looks at its guard, and acts if that says \"held\"",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("its clients are one process, which has one clock")),
        (&[GetSet], Expected::Breaks("B compares A's stamp with its own wall clock, and takes the lock by GETSET")),
        (
            &[SetnxExpire, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced, Etcd, ZooKeeper],
            Expected::Holds("the store ends the entry, and no client's wall clock is read"),
        ),
    ],
    play: |stage| fast_client(stage).boxed(),
};

async fn fast_client(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    let held = a.acquire(stage.long()).await?;
    act("B's wall clock is set a minute ahead");
    b.slot().step_wall_forward(Duration::from_secs(60))?;
    b.try_acquire(stage.long()).await?;
    held.is_held().await?;
    Ok(())
}

/// Redis's page for SETNX says that the loser's stamp does no harm, which holds for a release that does not compare.
pub(super) const LOSERS_STAMP: Scenario = Scenario {
    id: "S12",
    title: "two find a stale entry, and the loser writes last",
    steps: &[
        "A acquires with a short lease, and is killed; the lease ends",
        "D tries to acquire; its last request, for GetSet the GETSET, is held in the network",
        "C acquires with a long lease, and has the lock",
        "D's request arrives: D is told that it lost",
        "C releases; nobody holds the lock: a fresh client must get it at once",
    ],
    breaks_by: &[Observable::Stuck, Observable::Stolen],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("its table dies with its holders")),
        (
            &[GetSet],
            Expected::Breaks(
                "D's GETSET has put D's stamp over C's: C's release does not find its own, and the lock is stuck",
            ),
        ),
        (
            &[SetnxExpire, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::Holds("whoever does not get the lock writes nothing"),
        ),
        (&[Etcd, ZooKeeper], Expected::Holds("whoever does not get the lock leaves the queue again")),
    ],
    play: |stage| losers_stamp(stage).boxed(),
};

async fn losers_stamp(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = stage.frail("a").await?;
    a.acquire(stage.short()).await?;
    a.kill()?;
    if stage.clock_can_be_set() {
        act("time passes for everybody: the lease is over");
        stage.lab.clocks().step(stage.short_ttl() * 2)?;
    }
    let (c, d) = (stage.contender("c").await?, stage.contender("d").await?);
    c.free().await?;

    let last = || match stage.kind() {
        GetSet => Request::command("GETSET").with_part(&stage.key),
        _ => takes_the_lock(stage),
    };
    let late: Vec<_> = d.proxies().iter().map(|proxy| proxy.when(last()).hold_request()).collect();
    let losing = d.trying(stage.long())?;
    for late in &late {
        late.seen().await;
    }
    let held = c.acquire(stage.long()).await?;
    late.iter().for_each(Armed::release);
    if let Ok(both) = losing.outcome().await? {
        both.is_held().await?;
    }
    held.is_held().await?;
    held.release().await?;
    stage.probe_at_once().await
}
