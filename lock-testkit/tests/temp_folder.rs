//! Nothing is left behind by a process that is killed.

#![allow(clippy::unwrap_used, reason = "the functions below are for tests only")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use lock_core::Moment;
use lock_testkit::{EtcdCluster, RedisServer, TempFolder, ZooKeeperEnsemble};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

#[test]
fn a_dropped_folder_is_gone_with_all_that_is_in_it() {
    let (kept, folder) = (TempFolder::new("hasp-kept-").unwrap(), TempFolder::new("hasp-a b-").unwrap());
    let path = folder.path().to_owned();
    assert!(path.file_name().unwrap().to_str().unwrap().starts_with("hasp-a b-"));
    fs::create_dir(path.join("folder")).unwrap();
    fs::write(path.join("folder/file"), "").unwrap();
    drop(folder);
    assert!(!path.exists());
    assert!(kept.path().is_dir());
}

/// The test runs itself: once more, as the owner that is killed, with its whole process group as a terminal or a CI would.
#[test]
fn the_folders_of_all_servers_go_with_their_killed_owner() {
    const OWNER: &str = "LOCK_TESTKIT_OWNER";
    if std::env::var_os(OWNER).is_some() {
        let _redis = RedisServer::start().unwrap();
        let _etcd = EtcdCluster::start().unwrap();
        let _zookeeper = ZooKeeperEnsemble::start(1).unwrap();
        println!("\nstarted");
        thread::sleep(Duration::from_secs(60));
        return;
    }
    let temporary = TempFolder::new("hasp-killed-").unwrap();
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        // A shell lets its background jobs ignore SIGINT, and a test may be in one.
        let mut owner = Command::new("env")
            .arg("--default-signal=INT")
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "the_folders_of_all_servers_go_with_their_killed_owner", "--nocapture"])
            .env(OWNER, "1")
            .env("TMPDIR", temporary.path())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "started"));
        let folders = entries(temporary.path());
        let names: Vec<_> = folders.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        for (name, prefix) in names.iter().zip(["hasp-etcd-", "hasp-redis-", "hasp-zookeeper-"]) {
            assert!(name.starts_with(prefix), "{names:?}");
        }
        assert_eq!(names.len(), 3, "{names:?}");

        killpg(Pid::from_raw(owner.id().try_into().unwrap()), signal).unwrap();
        owner.wait().unwrap();
        let limit = Moment::now().saturating_add(Duration::from_secs(30));
        while !entries(temporary.path()).is_empty() {
            assert!(!limit.remaining().is_zero(), "not within 30 s: {:?}", entries(temporary.path()));
            thread::sleep(Duration::from_millis(5));
        }
    }
}
