//! The private Redis that consists of several servers, on the real program.

#![allow(clippy::unwrap_used, reason = "the functions below are for tests only")]

use std::thread;
use std::time::Duration;

use lock_core::Moment;
use lock_testkit::{RedisCluster, RedisSentinel};

/// Looks again every few milliseconds, for 60 s at most.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Moment::now().saturating_add(Duration::from_secs(60));
    while !holds() {
        assert!(!limit.remaining().is_zero(), "{what}: not within 60 s");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_cluster_takes_keys_of_every_slot_and_replaces_a_dead_master() {
    let cluster = RedisCluster::start().unwrap();
    for name in ["a", "b", "c", "d"] {
        let master = cluster.master_of(cluster.slot(name).unwrap()).unwrap();
        assert!(master < 3);
        cluster[master].command::<()>(&["SET", name, "1"]).unwrap();
        assert_eq!(cluster[master].command::<u64>(&["WAIT", "1", "5000"]).unwrap(), 1);
    }
    let slot = cluster.slot("a").unwrap();
    let first = cluster.master_of(slot).unwrap();
    cluster[first].kill().unwrap();
    until("its replica is the master", || cluster.master_of(slot).is_ok_and(|master| master == first + 3));
    until("it takes writes", || cluster[first + 3].command::<()>(&["SET", "a", "2"]).is_ok());
    cluster[first].restart().unwrap();
    until("the former master is a replica", || {
        cluster[first].command::<Vec<redis::Value>>(&["ROLE"]).is_ok_and(|role| format!("{role:?}").contains("slave"))
    });
}

#[test]
fn a_slot_moves_with_its_keys() {
    let cluster = RedisCluster::start().unwrap();
    let slot = cluster.slot("{a}").unwrap();
    let from = cluster.master_of(slot).unwrap();
    for number in 0..25 {
        cluster[from].command::<()>(&["SET", &format!("{{a}}{number}"), "1"]).unwrap();
    }
    let to = (from + 1) % 3;
    cluster.move_slot(slot, to).unwrap();
    assert_eq!(cluster[to].command::<Vec<String>>(&["KEYS", "*"]).unwrap().len(), 25);
    until("every node knows", || {
        cluster.iter().all(|node| {
            node.command::<String>(&["CLUSTER", "NODES"])
                .unwrap()
                .lines()
                .any(|line| line.contains(&cluster[to].addr().to_string()) && line.contains(&format!(" {slot}")))
        })
    });
    assert_eq!(cluster.master_of(slot).unwrap(), to);
}

#[test]
fn sentinels_replace_a_dead_master_and_make_it_a_replica_when_it_is_back() {
    let redis = RedisSentinel::start().unwrap();
    let [first, second] = redis.servers() else { panic!("there are two") };
    assert_eq!(redis.master().unwrap().addr(), first.addr());
    first.kill().unwrap();
    until("the replica is the master", || redis.master().unwrap().addr() == second.addr());
    until("it takes writes", || second.command::<()>(&["SET", "a", "1"]).is_ok());
    first.restart().unwrap();
    until("the former master has its data", || {
        first.command::<Option<String>>(&["GET", "a"]).is_ok_and(|value| value.is_some())
    });
}

#[test]
fn sentinels_fail_over_when_they_are_told_to() {
    let redis = RedisSentinel::start().unwrap();
    let [first, second] = redis.servers() else { panic!("there are two") };
    redis.fail_over().unwrap();
    until("the replica is the master", || redis.master().unwrap().addr() == second.addr());
    // The other sentinels have not taken the new master for a replica that went astray.
    until("the former master is a replica", || {
        first.command::<Vec<redis::Value>>(&["ROLE"]).is_ok_and(|role| format!("{role:?}").contains("slave"))
    });
    assert_eq!(redis.master().unwrap().addr(), second.addr());
    assert!(second.command::<()>(&["SET", "a", "1"]).is_ok());
}
