//! Ways to a server, and rights on it.

use std::sync::Arc;

use lock_core::{Backend, ErrorKind, LockKey, Release, WakeUp};
use lock_redis::{Config, Connection, Reentrant, Token, TokenOptions, Unlock};
use lock_testkit::RedisServer;

use crate::ground::{Ground, millis, renewed, soon, take, until};

async fn acquires_and_releases(url: &str) {
    for backend in [
        Arc::new(Token::connect(url).await.unwrap()) as Arc<dyn Backend>,
        Arc::new(Reentrant::connect(url).await.unwrap()),
    ] {
        let guard = renewed(&backend, millis(30_000)).lock("a").unwrap().acquire().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_unix_socket_works() {
    let server = RedisServer::builder().password("se:cret/%").start().unwrap();
    acquires_and_releases(&server.unix_url()).await;
}

#[tokio::test]
async fn a_password_works() {
    let server = RedisServer::builder().password("se:cret/%").start().unwrap();
    acquires_and_releases(&server.url()).await;
}

#[tokio::test]
async fn an_acl_user_with_the_documented_rights_and_a_database_work() {
    // What the docs of `Token` say, word for word.
    let rights = "+evalsha +eval +script +set +get +del +pttl +pexpire +time +exists +publish +subscribe +unsubscribe";
    let basic = "+hello +select +info";
    let keys = "~hasp:* ~hasp-fence:* &hasp-released:*";
    let server =
        RedisServer::builder().config("user", &format!("app on >secret {keys} {rights} {basic}")).start().unwrap();
    let url = format!("redis://app:secret@{}/3", server.addr());
    let token: Arc<dyn Backend> = Arc::new(Token::connect(&url).await.unwrap());
    assert_eq!(token.guarantees().wake_up, WakeUp::Push);
    let grant = take(&*token, "a", millis(30_000)).await;
    assert_eq!(server.command::<u64>(&["DBSIZE"]).unwrap(), 0, "database 0 is another one");
    token.renew(&[lock_core::Renew::new(&grant, millis(30_000))]).await.remove(0).unwrap();
    let waiting = renewed(&token, millis(5_000));
    let waiter = tokio::spawn(async move { waiting.lock("a").unwrap().acquire().await });
    let listening = || server.command::<(String, u64)>(&["PUBSUB", "NUMSUB", "hasp-released:{hasp:a}"]).unwrap().1 == 1;
    until("it listens", listening).await;
    assert_eq!(token.release(&grant).await.unwrap(), Release::Released);
    drop(soon(waiter).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_user_without_rights_on_the_channel_polls_and_never_publishes() {
    let server = RedisServer::builder().config("user", "app on >secret ~* resetchannels +@all").start().unwrap();
    let url = format!("redis://app:secret@{}", server.addr());
    for backend in [
        Arc::new(Token::connect(&url).await.unwrap()) as Arc<dyn Backend>,
        Arc::new(Reentrant::connect(&url).await.unwrap()),
    ] {
        assert_eq!(backend.guarantees().wake_up, WakeUp::Poll);
        let monitor = server.monitor().unwrap();
        let grant = take(&*backend, "a", millis(30_000)).await;
        let waiting = renewed(&backend, millis(5_000));
        let waiter = tokio::spawn(async move { waiting.lock("a").unwrap().acquire().await });
        tokio::time::sleep(millis(300)).await;
        assert!(!waiter.is_finished());
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
        let guard = soon(waiter).await.unwrap().unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        let key = LockKey::new("b").unwrap();
        take(&*backend, "b", millis(30_000)).await;
        assert_eq!(backend.force_release(&key).await.unwrap(), Release::Released);
        let commands = monitor.commands().unwrap();
        let channels = ["PUBLISH", "SUBSCRIBE"];
        assert!(!commands.iter().any(|command| channels.contains(&&*command.arguments[0].to_uppercase())));
    }
}

#[tokio::test]
async fn a_publish_right_that_is_taken_away_leaves_the_lock_whole() {
    let server = RedisServer::builder().config("user", "app on >secret ~* &* +@all").start().unwrap();
    let url = format!("redis://app:secret@{}", server.addr());
    for backend in [
        Arc::new(Token::connect(&url).await.unwrap()) as Arc<dyn Backend>,
        Arc::new(Reentrant::connect(&url).await.unwrap()),
    ] {
        let grant = take(&*backend, "a", millis(30_000)).await;
        server.command::<()>(&["ACL", "SETUSER", "app", "-publish"]).unwrap();
        let error = backend.release(&grant).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, lock_core::Effect::None));
        assert!(backend.inspect(&grant.claim.key).await.unwrap().held);
        server.command::<()>(&["ACL", "SETUSER", "app", "+publish"]).unwrap();
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_user_who_may_not_run_scripts_is_told_at_connect() {
    let server = RedisServer::builder().config("user", "app on >secret ~* &* +@all -@scripting").start().unwrap();
    let error = Token::connect(&format!("redis://app:secret@{}", server.addr())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains("+eval, +evalsha and +script|load"), "{error}");
}

#[tokio::test]
async fn a_user_who_may_not_load_scripts_or_ask_info_gets_locks() {
    let server = RedisServer::builder().config("user", "app on >secret ~* &* +@all -script -info").start().unwrap();
    acquires_and_releases(&format!("redis://app:secret@{}", server.addr())).await;
}

#[tokio::test]
async fn unlocking_by_watch_leaves_what_another_has_taken() {
    let ground = Ground::new();
    let pool = deadpool_redis::Config::from_url(ground.url_behind());
    let pool = pool.create_pool(Some(deadpool_redis::Runtime::Tokio1)).unwrap();
    let connection = Connection::open(&ground.server.url(), Config::new()).await.unwrap().with_pool(pool);
    let backend = Token::new(connection, TokenOptions::new().with_unlock(Unlock::Watch)).await.unwrap();
    // The transaction is held back while the lock changes hands behind its WATCH.
    let old = take(&backend, "a", millis(30_000)).await;
    let transaction = ground.proxy.when(lock_testkit::fault::Request::command("MULTI")).hold_request();
    let backend = Arc::new(backend);
    let unlocking = tokio::spawn({
        let backend = Arc::clone(&backend);
        async move { backend.release(&old).await }
    });
    soon(transaction.seen()).await;
    ground.server.command::<()>(&["DEL", "hasp:a"]).unwrap();
    let next = take(&*backend, "a", millis(30_000)).await;
    transaction.release();
    assert_eq!(soon(unlocking).await.unwrap().unwrap(), Release::NotHeld);
    assert!(ground.exists("hasp:a"));

    // A renewal of our own that comes in between is no reason to keep the lock.
    let transaction = ground.proxy.when(lock_testkit::fault::Request::command("MULTI")).hold_request();
    let unlocking = tokio::spawn({
        let (backend, next) = (Arc::clone(&backend), next.clone());
        async move { backend.release(&next).await }
    });
    soon(transaction.seen()).await;
    backend.renew(&[lock_core::Renew::new(&next, millis(40_000))]).await.remove(0).unwrap();
    transaction.release();
    assert_eq!(soon(unlocking).await.unwrap().unwrap(), Release::Released);
    assert!(!ground.exists("hasp:a"));
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_works_and_an_unknown_certificate_is_refused() {
    let certificates = lock_testkit::Certificates::new().unwrap();
    let server = RedisServer::builder().tls(certificates.server(), certificates.key()).start().unwrap();
    let url = server.tls_url().unwrap();
    let trusted = redis::TlsCertificates { client_tls: None, root_cert: Some(certificates.authority().into()) };
    let client = redis::Client::build_with_tls(url.as_str(), trusted).unwrap();
    let connection = Connection::from_client(client, Config::new()).await.unwrap();
    let backend: Arc<dyn Backend> = Arc::new(Token::new(connection, TokenOptions::new()).await.unwrap());
    assert_eq!(backend.guarantees().wake_up, WakeUp::Push);
    let grant = take(&*backend, "a", millis(30_000)).await;
    assert!(server.command::<bool>(&["EXISTS", "hasp:a"]).unwrap());
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);

    // The system does not know the authority.
    let error = Token::connect(&url).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, lock_core::Effect::None), "{error:?}");
    assert!(error.to_string().contains("trust the server's authority"), "{error}");
}
