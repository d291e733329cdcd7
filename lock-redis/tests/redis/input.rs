//! Bad input: a typed error that says what to do, and nothing left behind.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Backend, Effect, ErrorKind, LockKey, Release, Renew};
use lock_redis::{Config, Connection, Reentrant, Token, TokenOptions, Unlock};
use lock_testkit::RedisServer;

use crate::ground::{Ground, ROOM, claim, key_of, millis, take};

#[tokio::test]
async fn an_unknown_scheme_says_which_there_are() {
    for url in ["http://localhost", "localhost", "", "redis//localhost"] {
        let error = Token::connect(url).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None));
        assert!(error.to_string().contains("rediss:// (TLS)"), "{error}");
    }
    #[cfg(not(feature = "tls"))]
    {
        let error = Token::connect("rediss://localhost").await.unwrap_err();
        assert!(error.to_string().contains("enable the feature `tls`"), "{error}");
    }
}

#[tokio::test]
async fn nobody_at_the_address_is_unavailable() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [format!("redis://{free}"), "redis+unix:///nowhere/redis.sock".to_owned()] {
        let error = Reentrant::connect(&url).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
        assert!(error.to_string().contains("check that the server is up"), "{error}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_rejected_and_never_shown() {
    let server = RedisServer::builder().password("right").start().unwrap();
    let url = |password: &str| format!("redis://:{password}@{}", server.addr());
    let error = Token::connect(&url("hunter2")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    assert!(error.to_string().contains("check user and password in the URL"), "{error}");
    assert!(!format!("{error:?}{error}").contains("hunter2"));

    let error = Token::connect(&format!("redis://{}", server.addr())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    assert!(error.to_string().contains("NOAUTH"), "{error}");
}

#[tokio::test]
async fn debug_shows_no_password() {
    let server = RedisServer::builder().password("hunter2").start().unwrap();
    let pool = || {
        let config = deadpool_redis::Config::from_url(server.url());
        config.create_pool(Some(deadpool_redis::Runtime::Tokio1)).unwrap()
    };
    let manager = redis::Client::open(server.url()).unwrap().get_connection_manager().await.unwrap();
    let connections = [
        Connection::open(&server.url(), Config::new()).await.unwrap().with_pool(pool()),
        Connection::from_manager(manager, Config::new()).await.unwrap(),
        Connection::from_pool(pool(), Config::new()).await.unwrap(),
    ];
    for connection in connections {
        let token = Token::new(connection.clone(), TokenOptions::new()).await.unwrap();
        let reentrant = Reentrant::new(connection.clone()).await.unwrap();
        let shown = format!("{connection:?}{connection:#?}{token:?}{token:#?}{reentrant:?}{reentrant:#?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_not_busy() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let key = key_of(&*backend, "a");
        ground.server.command::<()>(&["LPUSH", &key, "theirs"]).unwrap();
        let claim = claim("a", millis(30_000));
        let grant = lock_core::Grant::new(claim.clone(), lock_core::Moment::now(), millis(30_000));
        let errors = [
            backend.try_acquire(&claim).await.map(drop).unwrap_err(),
            backend.acquire(&claim, &lock_core::Stop::new()).await.map(drop).unwrap_err(),
            backend.renew(&[Renew::new(&grant, millis(30_000))]).await.remove(0).map(drop).unwrap_err(),
            backend.release(&grant).await.map(drop).unwrap_err(),
            backend.abandon(&claim).await.map(drop).unwrap_err(),
            backend.inspect(&claim.key).await.map(drop).unwrap_err(),
        ];
        for error in errors {
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
            assert!(error.to_string().contains("use another name or prefix, or delete that key"), "{error}");
            assert_eq!(error.key().map(LockKey::as_str), Some("a"));
        }
        // Nothing is left beside it, and it is left as it was.
        assert_eq!(ground.server.command::<Vec<String>>(&["KEYS", "*"]).unwrap(), [key.as_str()]);
        assert_eq!(ground.server.command::<Vec<String>>(&["LRANGE", &key, "0", "-1"]).unwrap(), ["theirs"]);
        ground.server.command::<()>(&["DEL", &key]).unwrap();
    }
}

#[tokio::test]
async fn a_fence_of_another_type_leaves_no_lock_behind() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let key = key_of(&*backend, "a");
        let fence = format!("hasp-fence:{{{key}}}");
        ground.server.command::<()>(&["LPUSH", &fence, "theirs"]).unwrap();
        let error = backend.try_acquire(&claim("a", millis(30_000))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
        assert!(!ground.exists(&key));
    }
}

#[tokio::test]
async fn options_that_cannot_work_are_refused_at_once() {
    let ground = Ground::new();
    let connection = Connection::open(&ground.server.url(), Config::new()).await.unwrap();
    let watch = TokenOptions::new().with_unlock(Unlock::Watch);
    let error = Token::new(connection.clone(), watch).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("add a pool"), "{error}");
    let error = Token::new(connection, TokenOptions::new().with_prefix("a\n")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    for config in [Config::new().with_request_limit(Duration::ZERO), Config::new().with_poll_interval(Duration::ZERO)] {
        let error = Connection::open(&ground.server.url(), config).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("is zero"), "{error}");
    }
}

#[tokio::test]
async fn a_name_that_would_be_a_key_beside_another_lock_is_refused() {
    let ground = Ground::new();
    let connection = Connection::open(&ground.server.url(), Config::new()).await.unwrap();
    let token: Arc<dyn Backend> =
        Arc::new(Token::new(connection.clone(), TokenOptions::new().with_prefix("")).await.unwrap());
    let reentrant: Arc<dyn Backend> = Arc::new(Reentrant::new(connection).await.unwrap());
    for backend in [token, reentrant] {
        let error = backend.try_acquire(&claim("hasp-fence:{a}", millis(30_000))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("reserved"), "{error}");
        // A name that merely looks alike is a name like any other.
        let grant = take(&*backend, "hasp-fences", millis(30_000)).await;
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    }
}
