//! Families A and F, in part: the holder is paused, its machine is suspended, or what it writes is late.

use std::time::Duration;

use futures_util::FutureExt;
use lock_testkit::fault::{Proxy, Request};
use lock_testkit::history::Observable;

use super::{Expected, Scenario};
use crate::Failure;
use crate::lab::Stage;
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};
use crate::tell::act;

pub(super) const ALL: &[Scenario] = &[PAUSE, PAUSE_FENCED, SUSPEND, LATE_WRITE, LATE_WRITE_FENCED];

/// Kleppmann, "How to do distributed locking" (2016), "Protecting a resource with a lock".
const PAUSE: Scenario = Scenario {
    id: "S07",
    title: "the holder is paused past its deadline, and then writes",
    steps: &[
        "A acquires with a short, fixed lease, and reads two guarded counters: a row of SQLite, and a hash of Redis",
        "A's process is stopped, as by a garbage collection or a swapped page",
        "the lease ends; B acquires, adds one to both, and releases",
        "A goes on and writes what it read plus one: B's updates are lost",
    ],
    breaks_by: &[Observable::LostUpdate],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("its holders are one process: who pauses one of them pauses all")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced, Etcd, ZooKeeper],
            Expected::Breaks("every lease ends while its holder sleeps, and no lock can stop the holder's late write"),
        ),
    ],
    play: |stage| pause(stage, false).boxed(),
};

/// As above, "Making the lock safe with fencing".
const PAUSE_FENCED: Scenario = Scenario {
    id: "S07+f",
    title: "as S07, and the resources check fencing tokens",
    steps: &[
        "A acquires with a short, fixed lease, and reads two guarded counters: a row of SQLite, and a hash of Redis",
        "A's process is stopped",
        "the lease ends; B acquires, adds one to both with its fencing token, and releases",
        "A goes on and writes with its own, older token: both resources refuse it",
    ],
    breaks_by: &[Observable::StaleWriteAccepted, Observable::LostUpdate],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("its holders are one process: who pauses one of them pauses all")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Redlock],
            Expected::CannotApply("there is no fencing token that the resource could check"),
        ),
        (
            &[Token, TokenWatch, Reentrant, RedlockFenced, Etcd, ZooKeeper],
            Expected::Holds("B's token is greater than A's, so the resource refuses A's late write"),
        ),
    ],
    play: |stage| pause(stage, true).boxed(),
};

async fn pause(stage: &Stage<'_>, fenced: bool) -> Result<(), Failure> {
    let counters = [stage.table(fenced), stage.hash(fenced)];
    let (a, b) = (stage.frail("a").await?, stage.contender("b").await?);
    let held = a.acquire(stage.short()).await?;
    let read = [a.read(&counters[0]).await?, a.read(&counters[1]).await?];
    a.stop()?;
    let other = b.acquire(stage.long()).await?;
    for counter in &counters {
        b.increment(counter, &other).await?;
    }
    other.release().await?;
    a.cont()?;
    for (counter, read) in counters.iter().zip(read) {
        a.write(counter, read + 1, &held).await?;
    }
    Ok(())
}

/// `Instant` in Rust on Linux is CLOCK_MONOTONIC, which does not count suspend (rust-lang/rust#87906).
const SUSPEND: Scenario = Scenario {
    id: "S08",
    title: "the holder's machine is suspended, and its monotonic clock with it",
    steps: &[
        "A acquires with a fixed lease",
        "A's machine is suspended for a minute: time passes for everybody, and A's CLOCK_MONOTONIC stands still",
        "the lease ends (of etcd and ZooKeeper, whose clocks go on by themselves, B removes it); B acquires",
        "A goes on, looks at its guard, and acts if that says \"held\"",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("its holders are one process: who suspends one of them suspends all")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced, Etcd, ZooKeeper],
            Expected::Holds("every guard counts by CLOCK_BOOTTIME, which counts suspend"),
        ),
    ],
    play: |stage| suspend(stage).boxed(),
};

async fn suspend(stage: &Stage<'_>) -> Result<(), Failure> {
    const ASLEEP: Duration = Duration::from_secs(60);

    let a = stage.contender("a").await?;
    let held = a.acquire(stage.long()).await?;
    a.stop()?;
    act("A's machine sleeps for a minute");
    stage.lab.clocks().suspend(a.slot(), ASLEEP)?;
    let b = stage.contender("b").await?;
    if !stage.clock_can_be_set() {
        b.force_release().await?;
    }
    let other = b.acquire(stage.long()).await?;
    a.cont()?;
    held.is_held().await?;
    other.release().await?;
    Ok(())
}

/// Kleppmann, as above: packets of GitHub's network were late by 90 seconds.
const LATE_WRITE: Scenario = Scenario {
    id: "S46",
    title: "the holder's write is under way for longer than its lease",
    steps: &[
        "A acquires with a short, fixed lease, and reads two guarded counters: a row of SQLite, and a hash of Redis",
        "A writes both, looks at its guard, and that says \"held\"; the writes are held up on their way",
        "the lease ends; B acquires, adds one to both, and releases",
        "A's writes arrive: B's updates are lost, although A never acted past its deadline",
    ],
    breaks_by: &[Observable::LostUpdate],
    beside: &[Observable::RawOverlap],
    expected: &[(
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
            Etcd,
            ZooKeeper,
        ],
        Expected::Breaks("a lock that holds perfectly ends before the write lands, and the resource asks nobody"),
    )],
    play: |stage| late_write(stage, false).boxed(),
};

const LATE_WRITE_FENCED: Scenario = Scenario {
    id: "S46+f",
    title: "as S46, and the resources check fencing tokens",
    steps: &[
        "A acquires with a short, fixed lease, and reads two guarded counters: a row of SQLite, and a hash of Redis",
        "A writes both with its fencing token; the writes are held up on their way",
        "the lease ends; B acquires, adds one to both with its own token, and releases",
        "A's writes arrive with the older token: both resources refuse them",
    ],
    breaks_by: &[Observable::StaleWriteAccepted, Observable::LostUpdate],
    beside: &[Observable::RawOverlap],
    expected: &[
        (
            &[SetnxExpire, GetSet, BlindDelete, Redlock],
            Expected::CannotApply("there is no fencing token that the resource could check"),
        ),
        (
            &[Memory, Token, TokenWatch, Reentrant, RedlockFenced, Etcd, ZooKeeper],
            Expected::Holds("B's token is greater than A's, so the resource refuses A's late write"),
        ),
    ],
    play: |stage| late_write(stage, true).boxed(),
};

async fn late_write(stage: &Stage<'_>, fenced: bool) -> Result<(), Failure> {
    let (table, hash) = (stage.table(fenced), stage.hash(fenced));
    let a = stage.frail("a").await?;
    let b = stage.beside(&a, "b").await?;
    let held = a.acquire(stage.short()).await?;
    let read = [a.read(&table).await?, a.read(&hash).await?];

    let gate = stage.gate();
    let proxy = Proxy::start(stage.lab.redis().server.addr())?;
    let under_way = proxy.when(Request::any().with_part(&stage.key)).hold_request();
    let late =
        [a.writing_late(&table, read[0] + 1, &held, &gate)?, a.writing(&hash.by_way_of(&proxy), read[1] + 1, &held)?];
    under_way.seen().await;
    if !held.is_held().await? {
        return Err("the lease ended before the writes were under way".into());
    }
    let other = b.acquire(stage.long()).await?;
    for counter in [&table, &hash] {
        b.increment(counter, &other).await?;
    }
    other.release().await?;

    gate.open()?;
    under_way.release();
    for write in late {
        write.accepted().await?;
    }
    Ok(())
}
