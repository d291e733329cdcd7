//! What the strategies write, read back from a real server.

use std::time::Duration;

use lock_core::{Backend, Claim, ErrorKind, Lease, LockKey, Owner, Release, Renew};
use lock_naive::{BlindDelete, Config, GetSet, SetnxExpire};
use lock_testkit::RedisServer;

mod common;

use common::{claim, strategies};

/// S03. A naive `EXPIRE key 0.5` deletes the key at once; the figures here are read back from the server.
#[tokio::test]
async fn a_ttl_is_rounded_up_and_the_grant_says_so() {
    let server = RedisServer::start().unwrap();
    let monitor = server.monitor().unwrap();
    let last_sent = || monitor.commands().unwrap().pop().unwrap().arguments.join(" ");

    let seconds = SetnxExpire::connect(&server.url()).await.unwrap();
    let grant = seconds.try_acquire(&claim("a", 10_400)).await.unwrap().unwrap();
    assert_eq!(grant.ttl, Duration::from_secs(11));
    assert_eq!(last_sent(), "EXPIRE hasp:naive-setnx-expire:a 11");
    assert!((1..=11_000).contains(&server.command::<i64>(&["PTTL", "hasp:naive-setnx-expire:a"]).unwrap()));

    let renewal = seconds.renew(&[Renew::new(&grant, Duration::from_nanos(20_000_000_001))]).await.remove(0).unwrap();
    assert_eq!(renewal.ttl, Duration::from_secs(21));
    assert_eq!(last_sent(), "EXPIRE hasp:naive-setnx-expire:a 21");

    let millis = BlindDelete::connect(&server.url()).await.unwrap();
    let lease = Lease::fixed(Duration::from_micros(10_000_001));
    let grant =
        millis.try_acquire(&Claim::new(LockKey::new("a").unwrap(), Owner::random(), lease)).await.unwrap().unwrap();
    assert_eq!(grant.ttl, Duration::from_millis(10_001));
    assert!(last_sent().ends_with(" NX PX 10001"), "{}", last_sent());
    assert!((1..=10_001).contains(&server.command::<i64>(&["PTTL", "hasp:naive-blind-delete:a"]).unwrap()));
}

#[tokio::test]
async fn names_are_locks_of_their_own_and_no_application_keys() {
    let server = RedisServer::start().unwrap();
    let names = ["a", "a/b", "ab", "{a}", "{", "}", "a b", "a*", "a?", "[a]", "a\\", "🔒", "naive-getset:a", "hasp:a"];
    for backend in strategies(&server.url()).await {
        let other = strategies(&server.url()).await.into_iter().find(|other| other.name() == backend.name()).unwrap();
        for name in names {
            server.command::<()>(&["SET", name, "the application's"]).unwrap();
            assert!(backend.try_acquire(&claim(name, 60_000)).await.unwrap().is_some(), "{name}");
            assert!(other.try_acquire(&claim(name, 60_000)).await.unwrap().is_none(), "{name}");
            assert_eq!(server.command::<String>(&["GET", name]).unwrap(), "the application's");
        }
        for prefix in ["", "a", "a*", "a?", "[", "{", "\\", "🔒", "none"] {
            let mut listed: Vec<_> = backend.list(prefix).await.unwrap().iter().map(ToString::to_string).collect();
            let mut expected: Vec<_> = names.into_iter().filter(|name| name.starts_with(prefix)).collect();
            listed.sort_unstable();
            expected.sort_unstable();
            assert_eq!(listed, expected, "{prefix}");
        }
    }
}

#[tokio::test]
async fn another_prefix_is_another_lock() {
    let server = RedisServer::start().unwrap();
    let ours = BlindDelete::connect(&server.url()).await.unwrap();
    let theirs = ours.clone().with_config(Config::new().with_prefix("staging:"));
    assert!(ours.try_acquire(&claim("a", 60_000)).await.unwrap().is_some());
    assert_eq!(theirs.force_release(&LockKey::new("a").unwrap()).await.unwrap(), Release::NotHeld);
    assert!(theirs.try_acquire(&claim("a", 60_000)).await.unwrap().is_some());
    assert_eq!(server.command::<u64>(&["EXISTS", "staging:naive-blind-delete:a"]).unwrap(), 1);
}

/// Unchecked as they are, they prolong another's lock (S29), but not one that is not there.
#[tokio::test]
async fn a_renewal_never_makes_a_lock_again() {
    let server = RedisServer::start().unwrap();
    for backend in strategies(&server.url()).await {
        let grant = backend.try_acquire(&claim("a", 60_000)).await.unwrap().unwrap();
        let other = backend.try_acquire(&claim("b", 60_000)).await.unwrap().unwrap();
        assert_eq!(backend.force_release(&grant.claim.key).await.unwrap(), Release::Released);

        let mut answers = backend.renew(&[Renew::new(&grant, grant.ttl), Renew::new(&other, other.ttl)]).await;
        assert!(answers.pop().unwrap().is_ok(), "one lost lock does not fail the others");
        assert_eq!(answers.pop().unwrap().unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(server.command::<u64>(&["EXISTS", &format!("hasp:{}:a", backend.name())]).unwrap(), 0);
    }
}

#[tokio::test]
async fn a_connection_that_exists_is_enough() {
    let server = RedisServer::start().unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let manager = redis::aio::ConnectionManager::new(client).await.unwrap();
    let backends: [Box<dyn Backend>; 3] = [
        Box::new(SetnxExpire::from_manager(manager.clone())),
        Box::new(GetSet::from_manager(manager.clone())),
        Box::new(BlindDelete::from_manager(manager)),
    ];
    for backend in backends {
        let grant = backend.try_acquire(&claim("a", 60_000)).await.unwrap().unwrap();
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    }
}
