use std::fs;
use std::process::Command;
use std::time::Duration;

use futures_util::FutureExt;
use lock_testkit::history::Observable;
use lock_testkit::{EtcdCluster, ZooKeeperEnsemble};

use super::super::{Expected, Scenario};
use super::Servers;
use crate::lab::{Contender, Held, Place, Resource, Setup, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};
use crate::{Failure, Store};

const IN_PROCESS: &str = "its tokens live as long as the process, and so do all who hold one";
const NO_TOKEN: &str = "there is no fencing token that could go back";

pub(super) const DATA_LOST: Scenario = Scenario {
    id: "S43",
    title: "the source of tokens forgets, and the resource does not",
    steps: &[
        "A has held the lock a few times; it writes to the guarded counter with its token, and releases",
        "the store is replaced: Redis and ZooKeeper by an empty one, etcd by one restored from an older snapshot",
        "B acquires there, and writes to the counter, which knows A's token",
    ],
    breaks_by: &[Observable::TokenRegression],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply(IN_PROCESS)),
        (&[SetnxExpire, GetSet, BlindDelete, Redlock], Expected::CannotApply(NO_TOKEN)),
        (
            &[Token, TokenWatch, Reentrant, RedlockFenced],
            Expected::Holds("a token is never less than the server's time, so it grows without the last one"),
        ),
        // etcd.io, "Disaster recovery": only a restore with `--bump-revision` avoids it, which etcd 3.4 has not.
        (
            &[Etcd],
            Expected::Breaks("revisions begin again at the snapshot's: the counter refuses B, and everybody for long"),
        ),
        (
            &[ZooKeeper],
            Expected::Breaks(
                "an empty ensemble counts its transactions from one: the counter refuses B, and everybody for long",
            ),
        ),
    ],
    play: |stage| remembered(stage, Duration::ZERO).boxed(),
};

pub(super) const CLOCK_BACK: Scenario = Scenario {
    id: "S43clock",
    title: "as S43, and the new server's clock is behind",
    steps: &[
        "A has held the lock a few times; it writes to the guarded counter with its token, and releases",
        "every Redis is replaced by an empty one, whose wall clock is a minute behind",
        "B acquires there, and writes to the counter, which knows A's token",
    ],
    breaks_by: &[Observable::TokenRegression],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply(IN_PROCESS)),
        (&[SetnxExpire, GetSet, BlindDelete, Redlock], Expected::CannotApply(NO_TOKEN)),
        (
            &[Token, TokenWatch, Reentrant, RedlockFenced],
            Expected::Breaks("last token and clock went back together: for a minute the counter refuses every holder"),
        ),
        (&[Etcd, ZooKeeper], Expected::CannotApply("its tokens come from no clock: S43")),
    ],
    play: |stage| remembered(stage, BEHIND).boxed(),
};

pub(super) const BOTH_RESET: Scenario = Scenario {
    id: "S43reset",
    title: "the source of tokens goes back, and the resource with it",
    steps: &[
        "A has held the lock a few times; it acquires once more, reads the guarded counter, and is stopped",
        "the store is replaced as in S43 (Redis with its clock a minute behind), and the counter by an empty one",
        "B acquires, adds one to the counter with its token, and releases",
        "A goes on and writes what it read plus one: its token is old, and greater than B's",
    ],
    breaks_by: &[Observable::LostUpdate],
    beside: &[Observable::RawOverlap, Observable::InLeaseOverlap, Observable::TokenRegression],
    expected: &[
        (&[Memory], Expected::CannotApply(IN_PROCESS)),
        (&[SetnxExpire, GetSet, BlindDelete, Redlock], Expected::CannotApply(NO_TOKEN)),
        (
            &[Token, TokenWatch, Reentrant, RedlockFenced, Etcd, ZooKeeper],
            Expected::Breaks("a token says which of two is newer only as long as nobody starts to count again"),
        ),
    ],
    play: |stage| both_reset(stage).boxed(),
};

/// How far the clock of a server is behind that takes another's place.
const BEHIND: Duration = Duration::from_secs(60);

async fn remembered(stage: &Stage<'_>, behind: Duration) -> Result<(), Failure> {
    let (counter, stores) = (stage.table(true), Stores::start(stage, behind)?);
    let (a, held) = holder(stage, &stores).await?;
    a.increment(&counter, &held).await?;
    held.release().await?;
    let b = stage.contender_at("b", &stores.after, Setup::patient()).await?;
    let held = b.acquire(stage.long()).await?;
    b.increment(&counter, &held).await?;
    held.release().await?;
    Ok(())
}

async fn both_reset(stage: &Stage<'_>) -> Result<(), Failure> {
    let (counter, stores) = (stage.table(true), Stores::start(stage, BEHIND)?);
    let (a, held) = holder(stage, &stores).await?;
    let read = a.read(&counter).await?;
    a.stop()?;
    if let Resource::Sqlite { file, .. } = &counter {
        fs::remove_file(file)?;
    }
    let b = stage.contender_at("b", &stores.after, Setup::patient()).await?;
    let other = b.acquire(stage.long()).await?;
    b.increment(&counter, &other).await?;
    other.release().await?;
    a.cont()?;
    a.write(&counter, read + 1, &held).await?;
    Ok(())
}

/// A, who holds the lock, and not for the first time: each time has moved a store that counts.
async fn holder(stage: &Stage<'_>, stores: &Stores) -> Result<(Contender, Held), Failure> {
    const TIMES: usize = 5;

    let a = stage.contender_at("a", &stores.before, Setup::patient()).await?;
    for _ in 1..TIMES {
        a.acquire(stage.long()).await?.release().await?;
    }
    let held = a.acquire(stage.long()).await?;
    Ok((a, held))
}

/// A store, and what takes its place.
struct Stores {
    before: Place,
    after: Place,
    _servers: Box<dyn Send + Sync>,
}

impl Stores {
    /// What takes its place knows nothing of what is done there from now on.
    fn start(stage: &Stage<'_>, behind: Duration) -> Result<Self, Failure> {
        match stage.kind().store() {
            Store::Process => Err("a table in the process cannot be replaced".into()),
            Store::Redis | Store::Nodes => {
                let (before, after) = (Servers::start(stage, &[])?, Servers::start(stage, &[])?);
                after.all().try_for_each(|server| server.clock.step_wall_back(behind))?;
                Ok(Self { before: before.place(), after: after.place(), _servers: Box::new((before, after)) })
            }
            Store::Etcd => {
                let before = stage.lab.place(Store::Etcd)?;
                let after = restored(stage)?;
                Ok(Self { before, after: Place::etcd(&after), _servers: Box::new(after) })
            }
            Store::ZooKeeper => {
                let before = stage.lab.place(Store::ZooKeeper)?;
                let after = ZooKeeperEnsemble::builder(1).config("maxSessionTimeout", "60000").start()?;
                Ok(Self { before, after: Place::zookeeper(&after), _servers: Box::new(after) })
            }
        }
    }
}

/// An etcd with what the lab's has now, by way of a snapshot.
fn restored(stage: &Stage<'_>) -> Result<EtcdCluster, Failure> {
    let file = |kind| stage.lab.folder().join(format!("{}.{kind}", &stage.key)).display().to_string();
    let (snapshot, data) = (file("snapshot"), file("etcd"));
    etcdctl(&["--endpoints", &stage.lab.etcd()?.member(0).url(), "snapshot", "save", &snapshot])?;
    etcdctl(&["snapshot", "restore", &snapshot, "--data-dir", &data])?;
    // Of a flag that is given twice, the second counts.
    Ok(EtcdCluster::builder().flag("data-dir", &data).start()?)
}

fn etcdctl(arguments: &[&str]) -> Result<(), Failure> {
    let ran = Command::new("etcdctl").env("ETCDCTL_API", "3").args(arguments).output();
    let output = ran.map_err(|error| format!("etcdctl cannot be run ({error}); install Debian's `etcd-client`"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("etcdctl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)).into())
}
