//! The private etcd, on the real program.

#![allow(clippy::unwrap_used, reason = "the functions below are for tests only")]

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use lock_core::Moment;
use lock_testkit::EtcdCluster;
use serde_json::json;

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Moment::now().saturating_add(Duration::from_secs(20));
    while !holds() {
        assert!(!limit.remaining().is_zero(), "{what}: not within 20 s");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The processes that run with this URL among their arguments.
fn pids(url: &str) -> Vec<String> {
    let named = |pid: &String| {
        // A zombie has no command line.
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(url))
    };
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.unwrap().file_name().into_string().ok()).filter(named).collect()
}

fn put(cluster: &EtcdCluster) -> std::io::Result<serde_json::Value> {
    // "YQ==" is "a".
    cluster.call("/v3/kv/put", &json!({ "key": "YQ==", "value": "YQ==" }))
}

fn count(cluster: &EtcdCluster) -> String {
    cluster.call("/v3/kv/range", &json!({ "key": "YQ==" })).unwrap()["count"].as_str().unwrap_or("0").to_owned()
}

#[test]
fn several_start_at_once_each_on_its_own() {
    let clusters: Vec<_> = thread::scope(|scope| {
        let starts: Vec<_> = (0..3).map(|_| scope.spawn(|| EtcdCluster::start().unwrap())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    put(&clusters[0]).unwrap();
    assert_eq!(count(&clusters[0]), "1");
    assert_eq!((count(&clusters[1]), count(&clusters[2])), ("0".into(), "0".into()));
}

#[test]
fn three_members_go_on_with_two_and_choose_a_new_leader() {
    let cluster = EtcdCluster::builder().members(3).start().unwrap();
    assert_eq!(cluster.urls().iter().collect::<HashSet<_>>().len(), 3);
    let leader = cluster.leader().unwrap();
    cluster.member(leader).kill().unwrap();
    let next = cluster.leader().unwrap();
    assert_ne!(next, leader);
    put(&cluster).unwrap();
    cluster.member(leader).restart().unwrap();
    assert_eq!(count(&cluster), "1");
    assert!(cluster.member(leader).call("/v3/kv/range", &json!({ "key": "YQ==" })).is_ok());
}

#[test]
fn a_stopped_member_is_silent_until_it_runs_on() {
    let cluster = EtcdCluster::builder().members(3).start().unwrap();
    let leader = cluster.leader().unwrap();
    cluster.member(leader).stop().unwrap();
    assert_ne!(cluster.leader().unwrap(), leader);
    cluster.member(leader).cont().unwrap();
    cluster.member(leader).wait_until_healthy().unwrap();
}

#[test]
fn a_restart_keeps_the_data_and_the_port() {
    let cluster = EtcdCluster::start().unwrap();
    put(&cluster).unwrap();
    let urls = cluster.urls();
    cluster.member(0).kill().unwrap();
    assert!(put(&cluster).is_err());
    cluster.member(0).restart().unwrap();
    assert_eq!((count(&cluster), cluster.urls()), ("1".into(), urls));
    assert!(cluster.member(0).metric("etcd_server_has_leader").unwrap() > 0.0);
    assert!(cluster.member(0).metric("no_such_figure").is_err());
}

#[test]
fn a_flag_reaches_the_members_and_a_wrong_one_is_told_with_the_log() {
    let cluster = EtcdCluster::builder().flag("max-txn-ops", "1").start().unwrap();
    let two = json!({ "success": [{ "requestRange": { "key": "YQ==" } }, { "requestRange": { "key": "Yg==" } }] });
    let error = cluster.call("/v3/kv/txn", &two).unwrap_err();
    assert!(error.to_string().contains("too many operations"), "{error}");
    let error = EtcdCluster::builder().flag("no-such-flag", "1").start().unwrap_err();
    assert!(error.to_string().contains("no-such-flag"), "{error}");
    assert!(EtcdCluster::builder().members(0).start().is_err());
}

#[test]
fn a_dropped_cluster_leaves_no_process() {
    let cluster = EtcdCluster::builder().members(3).start().unwrap();
    let urls = cluster.urls();
    assert!(urls.iter().all(|url| !pids(url).is_empty()));
    drop(cluster);
    assert!(urls.iter().all(|url| pids(url).is_empty()));
}

/// The test runs itself: once more, as the owner that is killed.
#[test]
fn a_cluster_dies_with_its_killed_owner() {
    const OWNER: &str = "LOCK_TESTKIT_OWNER";
    if std::env::var_os(OWNER).is_some() {
        let cluster = thread::spawn(|| EtcdCluster::start().unwrap()).join().unwrap();
        println!("\nserver {}", cluster.urls()[0]);
        thread::sleep(Duration::from_secs(60));
        return;
    }
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_cluster_dies_with_its_killed_owner", "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let url = BufReader::new(owner.stdout.take().unwrap())
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("server ").map(ToOwned::to_owned))
        .unwrap();
    assert!(!pids(&url).is_empty());
    owner.kill().unwrap();
    owner.wait().unwrap();
    until("the member has gone with its owner", || pids(&url).is_empty());
}

#[test]
fn the_environment_of_a_member_outlives_a_restart() {
    let cluster = EtcdCluster::builder().env("HASP_COLOUR", "green").start().unwrap();
    let holds = || {
        let [pid] = &pids(&cluster.member(0).url())[..] else { panic!("a cluster of one is one process") };
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        environment.split(|byte| *byte == 0).any(|entry| entry == b"HASP_COLOUR=green")
    };
    assert!(holds());
    cluster.member(0).restart().unwrap();
    assert!(holds());
}
