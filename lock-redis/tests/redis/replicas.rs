//! `min_replicas`: what counts only when replicas have it, and what that does not give.

use std::sync::Arc;

use lock_core::{Backend, Effect, ErrorKind, LossReason, Release, Renew};
use lock_redis::{Config, Connection, Token, TokenOptions};
use lock_testkit::RedisServer;

use crate::ground::{ROOM, claim, millis, open, renewed, soon, take, until};

/// A master that sends its data at once to whoever follows.
fn master() -> RedisServer {
    RedisServer::builder().config("repl-diskless-sync-delay", "0").start().unwrap()
}

fn replica_of(master: &RedisServer) -> RedisServer {
    RedisServer::builder().config("replicaof", &format!("127.0.0.1 {}", master.port())).start().unwrap()
}

async fn followed_by(master: &RedisServer, replicas: u64) {
    until("the replicas follow", || master.command::<u64>(&["WAIT", &replicas.to_string(), "1"]).unwrap() == replicas)
        .await;
}

/// From now on it gets nothing of what its master does.
async fn cut_off(replica: &RedisServer) {
    // A master without a password refuses one.
    replica.command::<()>(&["CONFIG", "SET", "masterauth", "wrong"]).unwrap();
    replica.command::<u64>(&["CLIENT", "KILL", "TYPE", "master"]).unwrap();
    until("it has noticed", || {
        replica.command::<String>(&["INFO", "replication"]).unwrap().contains("master_link_status:down")
    })
    .await;
}

async fn token(server: &RedisServer, count: u32, limit: u64) -> Arc<dyn Backend> {
    token_over(open(&server.url(), ROOM).await, count, limit).await
}

async fn token_over(connection: Connection, count: u32, limit: u64) -> Arc<dyn Backend> {
    let options = TokenOptions::new().with_min_replicas(count, millis(limit));
    Arc::new(Token::new(connection, options).await.unwrap())
}

fn pool(server: &RedisServer) -> deadpool_redis::Pool {
    let config = deadpool_redis::Config::from_url(server.url());
    config.create_pool(Some(deadpool_redis::Runtime::Tokio1)).unwrap()
}

#[tokio::test]
async fn what_counts_is_on_the_replica() {
    let master = master();
    let replica = replica_of(&master);
    followed_by(&master, 1).await;
    let manager = redis::Client::open(master.url()).unwrap().get_connection_manager().await.unwrap();
    let connections = [
        open(&master.url(), ROOM).await,
        Connection::from_pool(pool(&master), Config::new()).await.unwrap(),
        Connection::from_manager(manager, Config::new()).await.unwrap().with_pool(pool(&master)),
    ];
    for connection in connections {
        let backend = token_over(connection, 1, 10_000).await;
        for _ in 0..20 {
            let grant = take(&*backend, "a", millis(10_000)).await;
            assert!(replica.command::<bool>(&["EXISTS", "hasp:a"]).unwrap());
            backend.renew(&[Renew::new(&grant, millis(90_000))]).await.remove(0).unwrap();
            assert!(replica.command::<i64>(&["PTTL", "hasp:a"]).unwrap() > 10_000);
            assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
        }
    }
}

#[tokio::test]
async fn without_replicas_nothing_is_granted_and_nothing_is_left() {
    let master = master();
    let backend = token(&master, 1, 20).await;
    let error = backend.try_acquire(&claim("a", millis(30_000))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
    assert!(error.to_string().contains("too few replicas (0 of 1 had it within 20ms)"), "{error}");
    assert!(!master.command::<bool>(&["EXISTS", "hasp:a"]).unwrap());

    // One that another holds is still busy, and no failure.
    let other = Token::connect(&master.url()).await.unwrap();
    let _theirs = take(&other, "b", millis(30_000)).await;
    assert!(backend.try_acquire(&claim("b", millis(30_000))).await.unwrap().is_none());
}

#[tokio::test]
async fn a_renewal_that_the_replica_does_not_have_does_not_count() {
    let master = master();
    let replica = replica_of(&master);
    followed_by(&master, 1).await;
    let backend = token(&master, 1, 200).await;
    let guard = renewed(&backend, millis(3_000)).lock("a").unwrap().acquire().await.unwrap();
    let (grant, gone) = (take(&*backend, "b", millis(30_000)).await, take(&*backend, "c", millis(30_000)).await);
    assert_eq!(backend.release(&gone).await.unwrap(), Release::Released);
    cut_off(&replica).await;
    let batch = [Renew::new(&grant, millis(90_000)), Renew::new(&gone, millis(90_000))];
    let [kept, lost] = backend.renew(&batch).await.try_into().unwrap();
    let error = kept.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{error}");
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::Lost);
    // The master goes on renewing it, and the holder does not believe it.
    assert_eq!(soon(guard.lost()).await, LossReason::Expired);
}

#[tokio::test]
async fn forgotten_scripts_are_sent_again() {
    let master = master();
    let _replica = replica_of(&master);
    followed_by(&master, 1).await;
    let backend = token(&master, 1, 10_000).await;
    master.command::<()>(&["SCRIPT", "FLUSH"]).unwrap();
    let grant = take(&*backend, "a", millis(10_000)).await;
    master.command::<()>(&["SCRIPT", "FLUSH"]).unwrap();
    backend.renew(&[Renew::new(&grant, millis(90_000))]).await.remove(0).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_replicas_holds_nobody_else_up() {
    let master = master();
    let connection = open(&master.url(), ROOM).await;
    let careful = token_over(connection.clone(), 1, 600_000).await;
    let plain = Token::new(connection, TokenOptions::new()).await.unwrap();
    let waiting = tokio::spawn(async move { careful.try_acquire(&claim("a", millis(5_000))).await });
    until("it waits", || master.command::<String>(&["INFO", "clients"]).unwrap().contains("blocked_clients:1")).await;
    let grant = take(&plain, "b", millis(30_000)).await;
    assert_eq!(plain.release(&grant).await.unwrap(), Release::Released);
    assert!(!waiting.is_finished());
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_shares_a_bounded_number_of_connections() {
    let master = master();
    let _replica = replica_of(&master);
    followed_by(&master, 1).await;
    let backend = token(&master, 1, 10_000).await;
    let crowd: Vec<_> = (0..200)
        .map(|number| {
            let backend = Arc::clone(&backend);
            tokio::spawn(async move {
                let grant = take(&*backend, &number.to_string(), millis(60_000)).await;
                assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
            })
        })
        .collect();
    for one in crowd {
        soon(one).await.unwrap();
    }
    let connections = master.command::<String>(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap().lines().count();
    // Beside the 32: the multiplexed one and the testkit's own.
    assert!(connections <= 34, "{connections}");
}

#[tokio::test]
async fn connections_that_died_while_idle_are_replaced() {
    let master = master();
    let _replica = replica_of(&master);
    followed_by(&master, 1).await;
    let backend = token(&master, 1, 10_000).await;
    let grant = take(&*backend, "a", millis(60_000)).await;
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    master.command::<u64>(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    let grant = take(&*backend, "a", millis(60_000)).await;
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
}

/// S34: of two replicas one has the lock, which is enough, and the other is promoted.
#[tokio::test]
async fn it_does_not_help_if_another_replica_is_promoted() {
    let master = master();
    let (with, without) = (replica_of(&master), replica_of(&master));
    followed_by(&master, 2).await;
    cut_off(&without).await;
    let backend = token(&master, 1, 10_000).await;
    let _grant = take(&*backend, "a", millis(60_000)).await;
    assert!(with.command::<bool>(&["EXISTS", "hasp:a"]).unwrap());
    master.kill().unwrap();
    without.command::<()>(&["REPLICAOF", "NO", "ONE"]).unwrap();
    let promoted = Token::connect(&without.url()).await.unwrap();
    let _second_holder = take(&promoted, "a", millis(30_000)).await;
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_at_once() {
    let master = master();
    let connection = open(&master.url(), ROOM).await;
    for (count, limit) in [(0, 1_000), (1, 0)] {
        let options = TokenOptions::new().with_min_replicas(count, millis(limit));
        let error = Token::new(connection.clone(), options).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None));
        assert!(error.to_string().contains("WAIT would wait for ever"), "{error}");
    }
    let manager = redis::Client::open(master.url()).unwrap().get_connection_manager().await.unwrap();
    let connection = Connection::from_manager(manager, Config::new()).await.unwrap();
    let options = TokenOptions::new().with_min_replicas(1, millis(100));
    let error = Token::new(connection, options.clone()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unsupported, Effect::None));
    assert!(error.to_string().contains("add a pool"), "{error}");

    let rules = "app on >secret ~* &* +@all -wait";
    let master = RedisServer::builder().config("user", rules).start().unwrap();
    let url = format!("redis://app:secret@{}", master.addr());
    let error = Token::new(open(&url, ROOM).await, options).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
}
