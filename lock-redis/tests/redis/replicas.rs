//! `min_replicas`: what counts only when replicas have it, and what that does not give.

use std::sync::Arc;

use lock_core::{Backend, Claim, Effect, ErrorKind, Lease, LockKey, LossReason, Owner, Release, Renew};
use lock_redis::{Config, Connection, Reentrant, ReentrantOptions, Token, TokenOptions};
use lock_testkit::RedisServer;

use crate::ground::{ROOM, claim, key_of, millis, open, renewed, soon, take, until};

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

/// Either strategy.
async fn both(server: &RedisServer, count: u32, limit: u64) -> [Arc<dyn Backend>; 2] {
    both_over(open(&server.url(), ROOM).await, count, limit).await
}

async fn both_over(connection: Connection, count: u32, limit: u64) -> [Arc<dyn Backend>; 2] {
    let options = ReentrantOptions::new().with_min_replicas(count, millis(limit));
    let reentrant = Reentrant::with_options(connection.clone(), options).await.unwrap();
    [token_over(connection, count, limit).await, Arc::new(reentrant)]
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
        for backend in both_over(connection, 1, 10_000).await {
            let key = key_of(&*backend, "a");
            for _ in 0..20 {
                let grant = take(&*backend, "a", millis(10_000)).await;
                assert!(replica.command::<bool>(&["EXISTS", &key]).unwrap());
                backend.renew(&[Renew::new(&grant, millis(90_000))]).await.remove(0).unwrap();
                assert!(replica.command::<i64>(&["PTTL", &key]).unwrap() > 10_000);
                assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
            }
        }
    }
}

#[tokio::test]
async fn without_replicas_nothing_is_granted_and_nothing_is_left() {
    let master = master();
    for backend in both(&master, 1, 20).await {
        let error = backend.try_acquire(&claim("a", millis(30_000))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
        assert!(error.to_string().contains("too few replicas (0 of 1 had it within 20ms)"), "{error}");
        assert!(!master.command::<bool>(&["EXISTS", &key_of(&*backend, "a")]).unwrap());
    }

    // One that another holds is still busy, and no failure.
    let token = token(&master, 1, 20).await;
    let other = Token::connect(&master.url()).await.unwrap();
    let _theirs = take(&other, "b", millis(30_000)).await;
    assert!(token.try_acquire(&claim("b", millis(30_000))).await.unwrap().is_none());
}

#[tokio::test]
async fn a_re_entry_that_is_undone_leaves_the_other_holds() {
    let master = master();
    let [_, careful] = both(&master, 1, 20).await;
    let plain = Reentrant::connect(&master.url()).await.unwrap();
    let owner = Owner::random();
    let hold = || Claim::new(LockKey::new("a").unwrap(), owner, Lease::fixed(millis(60_000)));
    let outer = plain.try_acquire(&hold()).await.unwrap().expect("the lock is free");
    let error = careful.try_acquire(&hold()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
    assert_eq!(master.command::<Vec<u64>>(&["HVALS", "a"]).unwrap(), [1]);
    assert_eq!(master.command::<u64>(&["SCARD", "hasp-claims:{a}"]).unwrap(), 1);
    // A repetition of the hold that counts is undone as a whole: nobody has been told that it is held.
    let error = careful.try_acquire(&outer.claim).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
    assert!(!master.command::<bool>(&["EXISTS", "a"]).unwrap());
}

#[tokio::test]
async fn a_renewal_that_the_replica_does_not_have_does_not_count() {
    let master = master();
    let replica = replica_of(&master);
    followed_by(&master, 1).await;
    let backends = both(&master, 1, 200).await;
    let mut held = Vec::new();
    for backend in &backends {
        let guard = renewed(backend, millis(3_000)).lock("a").unwrap().acquire().await.unwrap();
        let (grant, gone) = (take(&**backend, "b", millis(30_000)).await, take(&**backend, "c", millis(30_000)).await);
        assert_eq!(backend.release(&gone).await.unwrap(), Release::Released);
        held.push((backend, guard, grant, gone));
    }
    cut_off(&replica).await;
    for (backend, guard, grant, gone) in held {
        let batch = [Renew::new(&grant, millis(90_000)), Renew::new(&gone, millis(90_000))];
        let [kept, lost] = backend.renew(&batch).await.try_into().unwrap();
        let error = kept.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{error}");
        assert_eq!(lost.unwrap_err().kind(), ErrorKind::Lost);
        // The master goes on renewing it, and the holder does not believe it.
        assert_eq!(soon(guard.lost()).await, LossReason::Expired);
    }
}

#[tokio::test]
async fn forgotten_scripts_are_sent_again() {
    let master = master();
    let _replica = replica_of(&master);
    followed_by(&master, 1).await;
    for backend in both(&master, 1, 10_000).await {
        master.command::<()>(&["SCRIPT", "FLUSH"]).unwrap();
        let grant = take(&*backend, "a", millis(10_000)).await;
        master.command::<()>(&["SCRIPT", "FLUSH"]).unwrap();
        backend.renew(&[Renew::new(&grant, millis(90_000))]).await.remove(0).unwrap();
    }
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

/// S34: WAIT counts the replicas that have what its own connection has written. On another one it says 1 for a write that no
/// replica has.
#[tokio::test]
async fn wait_on_another_connection_says_nothing_and_ours_is_on_the_same() {
    let master = master();
    let replica = replica_of(&master);
    let client = redis::Client::open(master.url()).unwrap();
    let [mut writer, mut another] = [client.get_connection().unwrap(), client.get_connection().unwrap()];
    // After both have said hello, so that it has all that was written before.
    followed_by(&master, 1).await;
    let from_pool = Connection::from_pool(pool(&master), Config::new()).await.unwrap();
    let backends = [both(&master, 1, 100).await, both_over(from_pool, 1, 100).await];
    // Their connections to themselves have been waited on before, as in a program that runs.
    for backend in backends.iter().flatten() {
        let grant = take(&**backend, "before", millis(30_000)).await;
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    }

    // It stays connected, and gets nothing.
    replica.stop().unwrap();
    let wait = || redis::cmd("WAIT").arg(1).arg(100).to_owned();
    redis::cmd("SET").arg("written").arg(1).exec(&mut writer).unwrap();
    assert_eq!(wait().query::<u64>(&mut another).unwrap(), 1, "this is what S34 says");
    assert_eq!(wait().query::<u64>(&mut writer).unwrap(), 0);
    for backend in backends.iter().flatten() {
        let error = backend.try_acquire(&claim("a", millis(30_000))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
        assert!(error.to_string().contains("too few replicas (0 of 1"), "{error}");
        assert!(!master.command::<bool>(&["EXISTS", &key_of(&**backend, "a")]).unwrap());
    }
}

/// S34: of two replicas one has the lock, which is enough, and the other is promoted.
#[tokio::test]
async fn it_does_not_help_if_another_replica_is_promoted() {
    let master = master();
    let (with, without) = (replica_of(&master), replica_of(&master));
    followed_by(&master, 2).await;
    cut_off(&without).await;
    let backends = both(&master, 1, 10_000).await;
    let mut held = Vec::new();
    for backend in &backends {
        held.push(renewed(backend, millis(60_000)).lock("a").unwrap().acquire().await.unwrap());
        assert!(with.command::<bool>(&["EXISTS", &key_of(&**backend, "a")]).unwrap());
    }
    master.kill().unwrap();
    without.command::<()>(&["REPLICAOF", "NO", "ONE"]).unwrap();
    let promoted: [Arc<dyn Backend>; 2] = [
        Arc::new(Token::connect(&without.url()).await.unwrap()),
        Arc::new(Reentrant::connect(&without.url()).await.unwrap()),
    ];
    for (promoted, held) in promoted.iter().zip(&held) {
        let _second_holder = take(&**promoted, "a", millis(30_000)).await;
        assert!(held.is_held(), "two hold the lock");
    }
}

/// S34: with all replicas asked for it does help, and one that is down stops all grants.
#[tokio::test]
async fn if_all_replicas_are_asked_for_it_helps_whichever_is_promoted_and_none_may_be_down() {
    for promoted in [0, 1] {
        let master = master();
        let replicas = [replica_of(&master), replica_of(&master)];
        followed_by(&master, 2).await;
        let backend = token(&master, 2, 10_000).await;
        let grant = take(&*backend, "a", millis(120_000)).await;
        let impatient = token(&master, 2, 100).await;
        cut_off(&replicas[1 - promoted]).await;
        let error = impatient.try_acquire(&claim("b", millis(30_000))).await.unwrap_err();
        assert!(error.to_string().contains("too few replicas (1 of 2"), "{error}");
        master.kill().unwrap();
        replicas[promoted].command::<()>(&["REPLICAOF", "NO", "ONE"]).unwrap();
        let after = Token::connect(&replicas[promoted].url()).await.unwrap();
        assert!(after.try_acquire(&claim("a", millis(30_000))).await.unwrap().is_none());
        assert_eq!(after.release(&grant).await.unwrap(), Release::Released);
    }
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
        let options = ReentrantOptions::new().with_min_replicas(count, millis(limit));
        let error = Reentrant::with_options(connection.clone(), options).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None));
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
