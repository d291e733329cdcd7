//! What users get wrong: a typed error that says what to do, nothing left behind, and no password in sight.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Backend, Claim, Effect, ErrorKind, Lease, LockKey, Owner, Release, Renew};
use lock_naive::{BlindDelete, Config, GetSet, SetnxExpire};
use lock_testkit::RedisServer;

#[tokio::test]
async fn a_url_that_is_none_is_invalid_input() {
    for url in ["", "orders", "http://127.0.0.1", "amqp://user:secret@127.0.0.1", "redis://127.0.0.1/not-a-number"] {
        let error = SetnxExpire::connect(url).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None), "{url}: {error}");
        assert!(error.to_string().contains("give a URL such as"), "{error}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    server.kill().unwrap();
    let error = GetSet::connect(&url).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_rejected_and_none_is_ever_printed() {
    let server = RedisServer::builder().password("open-sesame").start().unwrap();

    let wrong = format!("redis://:secret@{}", server.addr());
    let error = BlindDelete::connect(&wrong).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
    assert!(error.to_string().contains("check the user and the password"), "{error}");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");

    // Without one the server says so at the first command, which may be the client's greeting or ours.
    let error = match BlindDelete::connect(&format!("redis://{}", server.addr())).await {
        Ok(backend) => backend.try_acquire(&claim("a", 1_000)).await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");

    for backend in strategies(&server.url()).await {
        assert!(backend.try_acquire(&claim("a", 1_000)).await.unwrap().is_some());
        assert!(!format!("{backend:?}").contains("open-sesame"), "{backend:?}");
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_never_a_lock() {
    let server = RedisServer::start().unwrap();
    for backend in strategies(&server.url()).await {
        let wire_key = format!("hasp:{}:a", backend.name());
        server.command::<()>(&["RPUSH", &wire_key, "not", "a", "lock"]).unwrap();
        let error = backend.try_acquire(&claim("a", 1_000)).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
        assert!(error.to_string().contains("delete it, or set another prefix"), "{error}");
        assert_eq!(server.command::<u64>(&["LLEN", &wire_key]).unwrap(), 3);
        assert_eq!(backend.list("").await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_value_that_is_no_stamp_is_an_error_of_getset() {
    let server = RedisServer::start().unwrap();
    let backend = GetSet::connect(&server.url()).await.unwrap();
    server.command::<()>(&["SET", "hasp:naive-getset:a", "somebody's note"]).unwrap();
    let error = backend.try_acquire(&claim("a", 1_000)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
    assert_eq!(server.command::<String>(&["GET", "hasp:naive-getset:a"]).unwrap(), "somebody's note");
}

#[tokio::test]
async fn a_ttl_out_of_range_is_refused_before_anything_is_sent() {
    let server = RedisServer::start().unwrap();
    for backend in strategies(&server.url()).await {
        let before = server.commands_processed().unwrap();
        let least = backend.guarantees().min_ttl;
        for ttl in
            [Duration::ZERO, least - Duration::from_nanos(1), Lease::MAX_TTL + Duration::from_nanos(1), Duration::MAX]
        {
            let key = LockKey::new("a").unwrap();
            let error = backend.try_acquire(&Claim::new(key, Owner::random(), Lease::fixed(ttl))).await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None), "{error}");
        }
        assert_eq!(server.commands_processed().unwrap(), before);
    }
}

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

#[tokio::test]
async fn a_server_that_does_not_answer_costs_no_more_than_the_limit() {
    let server = RedisServer::start().unwrap();
    let backend = BlindDelete::connect(&server.url()).await.unwrap();
    let backend = backend.with_config(Config::new().with_request_limit(Duration::from_millis(50)));
    server.stop().unwrap();
    let tried = tokio::time::timeout(Duration::from_secs(20), backend.try_acquire(&claim("a", 1_000))).await;
    let error = tried.expect("the limit is 50 ms").unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{error}");
}

async fn strategies(url: &str) -> Vec<Arc<dyn Backend>> {
    vec![
        Arc::new(SetnxExpire::connect(url).await.expect("the server runs")),
        Arc::new(GetSet::connect(url).await.expect("the server runs")),
        Arc::new(BlindDelete::connect(url).await.expect("the server runs")),
    ]
}

fn claim(name: &str, ttl_millis: u64) -> Claim {
    let lease = Lease::fixed(Duration::from_millis(ttl_millis));
    Claim::new(LockKey::new(name).expect("a valid name"), Owner::random(), lease)
}
