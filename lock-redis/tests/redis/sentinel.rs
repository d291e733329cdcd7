//! Locks under Sentinel: what a failover does to them, and what a resumed old master does.

use std::sync::Arc;

use lock_core::{Backend, Effect, ErrorKind, LossReason, Release, Stop};
use lock_redis::{Config, Connection, Reentrant, ReentrantOptions, Token, TokenOptions};
use lock_testkit::{RedisSentinel, RedisServer};

use crate::ground::{claim, fixed, key_of, millis, renewed, soon, take, until};

/// Enough for a busy machine; half of it is waited for sentinels who are silent, where no majority answers.
fn patient() -> Config {
    Config::new().with_request_limit(millis(10_000))
}

/// Connects, also while the sentinels do not agree on the new master yet.
async fn connect(redis: &RedisSentinel) -> Connection {
    let master = format!("redis://{}", RedisSentinel::NAME);
    let connecting = async {
        loop {
            match Connection::open_sentinel(&redis.urls(), &master, patient()).await {
                Ok(connection) => break connection,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
    };
    soon(connecting).await
}

async fn token(redis: &RedisSentinel) -> Arc<dyn Backend> {
    Arc::new(Token::new(connect(redis).await, TokenOptions::new()).await.unwrap())
}

fn exists(server: &RedisServer, key: &str) -> bool {
    server.command(&["EXISTS", key]).unwrap()
}

/// Not while it is made a master: then it cuts all its clients, the testkit too.
fn listens(server: &RedisServer, name: &str) -> bool {
    let channel = format!("hasp-released:{{hasp:{name}}}");
    server.command::<(String, u64)>(&["PUBSUB", "NUMSUB", &channel]).is_ok_and(|(_, listeners)| listeners == 1)
}

/// Not while it is made one, for the same reason.
fn is_replica(server: &RedisServer) -> bool {
    server.command::<String>(&["INFO", "replication"]).is_ok_and(|info| info.contains("role:slave"))
}

/// Cuts the replica off from its master, so that it stays a replica and gets nothing any more.
fn cut_off(replica: &RedisServer) {
    // A master without a password refuses one.
    replica.command::<()>(&["CONFIG", "SET", "masterauth", "wrong"]).unwrap();
    replica.command::<u64>(&["CLIENT", "KILL", "TYPE", "master"]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_the_replica_has_is_held_through_a_failover() {
    let redis = RedisSentinel::start().unwrap();
    let [first, second] = redis.servers() else { panic!("there are two") };
    let (token, reentrant) = (token(&redis).await, Arc::new(Reentrant::new(connect(&redis).await).await.unwrap()));
    let backends: [Arc<dyn Backend>; 2] = [Arc::clone(&token), reentrant];
    let mut guards = Vec::new();
    for backend in &backends {
        guards.push(renewed(backend, millis(20_000)).lock("a").unwrap().acquire().await.unwrap());
    }
    until("the replica has both", || exists(second, "hasp:a") && exists(second, "a")).await;
    redis.fail_over().unwrap();
    until("the replica is the master", || redis.master().unwrap().addr() == second.addr()).await;
    until("the old master is a replica", || is_replica(first)).await;

    for (backend, guard) in backends.iter().zip(guards) {
        let extending = async {
            while let Err(error) = guard.extend(millis(40_000)).await {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            }
        };
        soon(extending).await;
        let key = if backend.name() == "redis-reentrant" { "a" } else { "hasp:a" };
        assert!(second.command::<i64>(&["PTTL", key]).unwrap() > 20_000, "renewed at the new master");
        assert!(backend.try_acquire(&claim("a", millis(5_000))).await.unwrap().is_none());
        assert!(guard.is_held());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert!(!exists(second, key));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_loses_a_lock_that_the_replica_lacks_and_another_gets_it_inside_the_lease() {
    let redis = RedisSentinel::start().unwrap();
    let [first, second] = redis.servers() else { panic!("there are two") };
    let (a, b) = (token(&redis).await, token(&redis).await);
    cut_off(second);
    let fixed = fixed(&a, millis(60_000)).lock("fixed").unwrap().acquire().await.unwrap();
    let kept_alive = renewed(&a, millis(15_000)).lock("renewed").unwrap().acquire().await.unwrap();
    assert!(b.try_acquire(&claim("fixed", millis(5_000))).await.unwrap().is_none());
    first.kill().unwrap();

    let theirs = take(&*b, "fixed", millis(5_000)).await;
    assert!(fixed.is_held(), "two hold the lock: this is what S33 says");
    until("the first sentinel knows", || redis.master().unwrap().addr() == second.addr()).await;
    // Whoever renews learns of it from the new master.
    assert_eq!(soon(kept_alive.lost()).await, LossReason::NotHeld);
    assert_eq!(b.release(&theirs).await.unwrap(), Release::Released);
    assert_eq!(fixed.release().await.unwrap(), Release::NotHeld);

    // The process goes on with the new master.
    let grant = take(&*a, "next", millis(5_000)).await;
    assert!(exists(second, "hasp:next"));
    assert_eq!(a.release(&grant).await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_subscribed_anew_at_the_new_master() {
    let redis = RedisSentinel::start().unwrap();
    let [first, second] = redis.servers() else { panic!("there are two") };
    let (holder, waiting) = (token(&redis).await, token(&redis).await);
    let grant = take(&*holder, "a", millis(120_000)).await;
    until("the replica has it", || exists(second, "hasp:a")).await;
    let waiter = {
        let waiting = Arc::clone(&waiting);
        tokio::spawn(async move {
            let claim = claim("a", millis(5_000));
            loop {
                // The driver, too, would try again.
                if let Ok(Some(grant)) = waiting.acquire(&claim, &Stop::new()).await {
                    break grant;
                }
            }
        })
    };
    until("it listens at the master", || listens(first, "a")).await;
    first.kill().unwrap();
    until("it listens at the new master", || listens(second, "a")).await;
    let released = async {
        loop {
            match holder.release(&grant).await {
                Ok(release) => break release,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
    };
    assert_eq!(soon(released).await, Release::Released);
    soon(waiter).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_old_master_grants_a_second_holder_inside_the_lease_of_the_first() {
    let redis = RedisSentinel::start().unwrap();
    let [first, second] = redis.servers() else { panic!("there are two") };
    let stale = token(&redis).await;
    first.stop().unwrap();
    until("the replica is the master", || redis.master().unwrap().addr() == second.addr()).await;
    let held = fixed(&token(&redis).await, millis(60_000)).lock("a").unwrap().acquire().await.unwrap();
    // They would make the old master a replica some seconds after it is back. The stale client is faster: here it always is.
    for sentinel in redis.sentinels() {
        sentinel.stop().unwrap();
    }
    first.cont().unwrap();
    let grant = stale.try_acquire(&claim("a", millis(5_000))).await.unwrap();
    assert!(grant.is_some() && held.is_held(), "two hold the lock: this is what S35 says");

    // When the sentinels are back, the stale client finds the master.
    for sentinel in redis.sentinels() {
        sentinel.cont().unwrap();
    }
    until("the old master is a replica", || is_replica(first)).await;
    let asking = async {
        loop {
            match stale.try_acquire(&claim("a", millis(5_000))).await {
                Ok(grant) => break grant,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
    };
    assert!(soon(asking).await.is_none());
    assert_eq!(held.release().await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_min_replicas_a_resumed_old_master_grants_nothing() {
    let redis = RedisSentinel::start().unwrap();
    let [first, second] = redis.servers() else { panic!("there are two") };
    let stale: [Arc<dyn Backend>; 2] = [
        Arc::new(
            Token::new(connect(&redis).await, TokenOptions::new().with_min_replicas(1, millis(300))).await.unwrap(),
        ),
        Arc::new({
            let options = ReentrantOptions::new().with_min_replicas(1, millis(300));
            Reentrant::with_options(connect(&redis).await, options).await.unwrap()
        }),
    ];
    for stale in &stale {
        let grant = take(&**stale, "a", millis(30_000)).await;
        assert_eq!(stale.release(&grant).await.unwrap(), Release::Released);
    }
    first.stop().unwrap();
    until("the replica is the master", || redis.master().unwrap().addr() == second.addr()).await;
    let held = fixed(&token(&redis).await, millis(60_000)).lock("a").unwrap().acquire().await.unwrap();
    for sentinel in redis.sentinels() {
        sentinel.stop().unwrap();
    }
    first.cont().unwrap();
    for stale in &stale {
        // The first may find the connection dead, on which it was idle; none finds the lock.
        for _ in 0..3 {
            let error = stale.try_acquire(&claim("a", millis(5_000))).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("too few replicas"), "{error}");
            assert_eq!(error.effect(), Effect::None, "it has been undone");
        }
        assert!(!exists(first, &key_of(&**stale, "a")));
    }
    assert!(held.is_held());
    for sentinel in redis.sentinels() {
        sentinel.cont().unwrap();
    }
}

#[tokio::test]
async fn silent_sentinels_cost_nothing_and_one_that_errs_does_not_decide() {
    let redis = RedisSentinel::start().unwrap();
    let [_, second] = redis.servers() else { panic!("there are two") };
    let works = async || {
        let master = format!("redis://{}", RedisSentinel::NAME);
        let connection = Connection::open_sentinel(&redis.urls(), &master, patient()).await.unwrap();
        let backend = Token::new(connection, TokenOptions::new()).await.unwrap();
        let grant = take(&backend, "a", millis(5_000)).await;
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    };
    redis.sentinels()[0].command::<()>(&["SENTINEL", "REMOVE", RedisSentinel::NAME]).unwrap();
    let port = second.port().to_string();
    let wrong = ["SENTINEL", "MONITOR", RedisSentinel::NAME, "127.0.0.1", &port, "2"];
    redis.sentinels()[0].command::<()>(&wrong).unwrap();
    // Its answer is often the first.
    for _ in 0..20 {
        works().await;
    }
    redis.sentinels()[0].stop().unwrap();
    works().await;
    redis.sentinels()[1].stop().unwrap();
    works().await;
}

#[tokio::test]
async fn a_replica_is_not_taken_for_the_master() {
    let redis = RedisSentinel::start().unwrap();
    let [first, second] = redis.servers() else { panic!("there are two") };
    // Before the sentinels notice: they go on naming the server that is a replica now.
    for sentinel in redis.sentinels() {
        sentinel.command::<()>(&["SENTINEL", "DEBUG", "INFO-PERIOD", "600000"]).unwrap();
    }
    let backend = token(&redis).await;
    first.command::<()>(&["REPLICAOF", "127.0.0.1", &second.port().to_string()]).unwrap();
    let errors = [
        backend.try_acquire(&claim("a", millis(5_000))).await.unwrap_err(),
        backend.try_acquire(&claim("a", millis(5_000))).await.unwrap_err(),
    ];
    for (error, says) in errors.iter().zip(["READONLY", "is a replica"]) {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test]
async fn an_unknown_master_and_dead_sentinels_say_so() {
    let redis = RedisSentinel::start().unwrap();
    let error = Connection::open_sentinel(&redis.urls(), "redis://nobody", Config::new()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None));
    assert!(error.to_string().contains("the sentinels know none called `nobody`"), "{error}");
    let error = Connection::open_sentinel(&redis.urls(), "redis+unix:///a", Config::new()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None));
    let urls = redis.urls();
    for sentinel in redis.sentinels() {
        sentinel.kill().unwrap();
    }
    let master = format!("redis://{}", RedisSentinel::NAME);
    let error = Connection::open_sentinel(&urls, &master, Config::new()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None));
    assert!(error.to_string().contains("cannot connect"), "{error}");
}
