//! What users get wrong: a typed error that says what to do, nothing left behind, and no password in sight.

use std::time::Duration;

use lock_core::{Backend, Claim, Effect, ErrorKind, Lease, LockKey, Owner};
use lock_naive::{BlindDelete, Config, GetSet, SetnxExpire};
use lock_testkit::RedisServer;

mod common;

use common::{claim, strategies};

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
