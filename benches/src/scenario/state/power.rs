use std::fs;
use std::path::{Path, PathBuf};

use futures_util::FutureExt;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::{ONE_REDIS, Servers, newcomer};
use crate::Failure;
use crate::lab::Stage;
use crate::strategy::Kind::{Etcd, Memory, Redlock, RedlockFenced, ZooKeeper};
use crate::tell::act;

const NO_REDIS: &str =
    "it answers when its log is on the disk, so the power takes nothing that was answered; S36 is its restart";
const IN_PROCESS: &str = "the lock is in no file";

pub(super) const KILL: Scenario = Scenario {
    id: "S37kill",
    title: "a server with appendfsync everysec is killed",
    steps: &[
        "A acquires with a long lease on a Redis with an append-only file; of Redlock's three it has reached two",
        "the server (of Redlock's, one of A's two) is killed at once, and restarts",
        "B, who reaches every server, tries to acquire what A still holds",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply(IN_PROCESS)),
        (ONE_REDIS, Expected::Holds("the write was with the kernel before A was answered, and outlives the process")),
        (&[Redlock, RedlockFenced], Expected::Holds("the same: the server comes back with its vote")),
        (&[Etcd, ZooKeeper], Expected::CannotApply(NO_REDIS)),
    ],
    play: |stage| play(stage, "everysec", Loss::Process).boxed(),
};

/// redis.io, "Redis persistence": with `everysec` "you may lose 1 second of data if there is a disaster".
pub(super) const CUT_EVERYSEC: Scenario = Scenario {
    id: "S37",
    title: "the power fails, with appendfsync everysec",
    steps: &[
        "A acquires with a long lease on a Redis with an append-only file; of Redlock's three it has reached two",
        "the power of the server (of Redlock's, one of A's two) fails at once, and A's lock had not been synced",
        "the server restarts; B, who reaches every server, tries to acquire what A still holds",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply(IN_PROCESS)),
        (ONE_REDIS, Expected::Breaks("A was answered up to a second before its lock was on the disk")),
        (
            &[Redlock, RedlockFenced],
            Expected::Breaks("the server that both majorities share has lost its vote, as in S36"),
        ),
        (&[Etcd, ZooKeeper], Expected::CannotApply(NO_REDIS)),
    ],
    play: |stage| play(stage, "everysec", Loss::Power).boxed(),
};

pub(super) const CUT_ALWAYS: Scenario = Scenario {
    id: "S37always",
    title: "the power fails, with appendfsync always",
    steps: &[
        "A acquires with a long lease on a Redis that syncs its file before it answers; of Redlock's three on two",
        "the power of the server (of Redlock's, one of A's two) fails at once, and everything had been synced",
        "the server restarts; B, who reaches every server, tries to acquire what A still holds",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply(IN_PROCESS)),
        (ONE_REDIS, Expected::Holds("the lock was on the disk before A was answered; each grant pays for it")),
        (&[Redlock, RedlockFenced], Expected::Holds("the vote was on the disk before A was answered")),
        (&[Etcd, ZooKeeper], Expected::CannotApply(NO_REDIS)),
    ],
    play: |stage| play(stage, "always", Loss::Power).boxed(),
};

/// What comes to an end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    Process,
    /// With it goes what the kernel had not written.
    Power,
}

async fn play(stage: &Stage<'_>, fsync: &str, loss: Loss) -> Result<(), Failure> {
    let servers = Servers::start(stage, &[("appendonly", "yes"), ("appendfsync", fsync)])?;
    let server = &servers.struck.server;
    let _a = servers.holder(stage).await?;
    let folder: (String, String) = server.command(&["CONFIG", "GET", "dir"])?;
    server.kill()?;
    if loss == Loss::Power && fsync != "always" {
        act("the power takes what was not on the disk");
        forget_from(&append_only_file(Path::new(&folder.1))?, &stage.key)?;
    }
    server.restart()?;
    newcomer(stage, &servers.place()).await
}

/// The file that grows: since Redis 7 it is one of several, in a folder of their own.
fn append_only_file(folder: &Path) -> Result<PathBuf, Failure> {
    let files = fs::read_dir(folder.join("appendonlydir"))?;
    let mut paths = files.map(|file| file.map(|file| file.path())).collect::<Result<Vec<_>, _>>()?.into_iter();
    let grows = |path: &PathBuf| path.to_string_lossy().ends_with(".incr.aof");
    paths.find(grows).ok_or_else(|| "this Redis has no append-only file; the lab needs Redis 7".into())
}

/// Ends the file where it first has this text. When Redis loads it, it drops what is left of the command, and of the
/// transaction around it.
fn forget_from(file: &Path, text: &str) -> Result<(), Failure> {
    let content = fs::read(file)?;
    let at = content.windows(text.len()).position(|window| window == text.as_bytes());
    let at = at.ok_or("the append-only file does not name the lock")?;
    Ok(fs::write(file, &content[..at])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_power_takes_what_is_behind_the_first_mention() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.aof");
        fs::write(&file, "SET a 1 SET lock 2 DEL lock").unwrap();
        forget_from(&file, "lock").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "SET a 1 SET ");
        assert!(forget_from(&file, "lock").is_err(), "nothing was there to lose");
    }
}
