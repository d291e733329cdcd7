//! Passwords and TLS under Sentinel and in a cluster.

use std::sync::Arc;

use lock_core::{Backend, Effect, ErrorKind, Release, WakeUp};
use lock_redis::{Config, Connection, Token, TokenOptions};
use lock_testkit::{RedisCluster, RedisSentinel};

use crate::ground::{claim, millis, soon, take, until};

/// Enough for a busy machine.
fn patient() -> Config {
    Config::new().with_request_limit(millis(10_000))
}

async fn token(connection: Connection) -> Arc<dyn Backend> {
    Arc::new(Token::new(connection, TokenOptions::new()).await.unwrap())
}

async fn takes_and_releases(backend: &dyn Backend, names: &[&str]) {
    assert_eq!(backend.guarantees().wake_up, WakeUp::Push);
    for name in names {
        let grant = take(backend, name, millis(60_000)).await;
        let releasing = async {
            loop {
                match backend.release(&grant).await {
                    Ok(release) => break release,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                }
            }
        };
        assert_eq!(soon(releasing).await, Release::Released);
    }
}

fn master(password: &str) -> String {
    format!("redis://:{password}@{}", RedisSentinel::NAME)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_and_sentinels_each_have_a_password_of_their_own_through_a_failover() {
    let redis = RedisSentinel::builder().password("se:cret/%").sentinel_password("watch/men").start().unwrap();
    let secret = master("se%3Acret%2F%25");
    let backend = token(Connection::open_sentinel(&redis.urls(), &secret, patient()).await.unwrap()).await;
    takes_and_releases(&*backend, &["a"]).await;
    let second = &redis.servers()[1];
    redis.fail_over().unwrap();
    until("the replica is the master", || redis.master().unwrap().addr() == second.addr()).await;
    takes_and_releases(&*backend, &["b"]).await;

    // Whoever knows only one of the two is told which is wrong.
    for master in [master("wrong"), format!("redis://{}", RedisSentinel::NAME)] {
        let error = Connection::open_sentinel(&redis.urls(), &master, patient()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
    }
    let without: Vec<_> = redis.sentinels().iter().map(|sentinel| format!("redis://{}", sentinel.addr())).collect();
    let wrong: Vec<_> = redis.sentinels().iter().map(|sentinel| format!("redis://:x@{}", sentinel.addr())).collect();
    for urls in [without, wrong] {
        let error = Connection::open_sentinel(&urls, &secret, patient()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
        assert!(error.to_string().contains("user and password"), "{error}");
    }
}

#[tokio::test]
async fn a_user_of_the_sentinels_needs_one_command() {
    let rights = "app on >watch +sentinel|get-master-addr-by-name";
    let redis = RedisSentinel::builder().sentinel_config("user", rights).start().unwrap();
    let urls: Vec<_> =
        redis.sentinels().iter().map(|sentinel| format!("redis://app:watch@{}", sentinel.addr())).collect();
    let master = format!("redis://{}", RedisSentinel::NAME);
    let backend = token(Connection::open_sentinel(&urls, &master, patient()).await.unwrap()).await;
    takes_and_releases(&*backend, &["a"]).await;

    for sentinel in redis.sentinels() {
        sentinel.command::<()>(&["ACL", "SETUSER", "app", "-@all"]).unwrap();
    }
    let error = Connection::open_sentinel(&urls, &master, patient()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
}

/// Then nobody asks the server whether it is the master. A replica refuses each request, all the same.
#[tokio::test]
async fn a_user_who_may_not_ask_for_the_role_gets_locks() {
    let redis = RedisSentinel::start().unwrap();
    let [first, second] = redis.servers() else { panic!("there are two") };
    first.command::<()>(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-role"]).unwrap();
    let master = format!("redis://app:secret@{}", RedisSentinel::NAME);
    let backend = token(Connection::open_sentinel(&redis.urls(), &master, patient()).await.unwrap()).await;
    takes_and_releases(&*backend, &["a"]).await;
    // Before the sentinels notice: they go on naming the server that is a replica now.
    for sentinel in redis.sentinels() {
        sentinel.command::<()>(&["SENTINEL", "DEBUG", "INFO-PERIOD", "600000"]).unwrap();
    }
    first.command::<()>(&["REPLICAOF", "127.0.0.1", &second.port().to_string()]).unwrap();
    for _ in 0..3 {
        let error = backend.try_acquire(&claim("b", millis(5_000))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
        assert!(error.to_string().contains("READONLY"), "{error}");
    }
}

#[tokio::test]
async fn a_cluster_with_a_password_works_also_while_slots_move() {
    let cluster = RedisCluster::builder().password("se:cret/%").start().unwrap();
    // One node is enough to find the others, and its password is that of all.
    let backend = token(Connection::open_cluster(&[cluster[1].url()], patient()).await.unwrap()).await;
    takes_and_releases(&*backend, &["a", "b", "c", "d"]).await;
    let slot = cluster.slot("hasp:a").unwrap();
    cluster.move_slot(slot, (cluster.master_of(slot).unwrap() + 1) % 3).unwrap();
    takes_and_releases(&*backend, &["a", "b", "c", "d"]).await;

    let without: Vec<_> = cluster.iter().map(|node| format!("redis://{}", node.addr())).collect();
    let error = Connection::open_cluster(&without, patient()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
}

#[cfg(feature = "tls")]
mod tls {
    use lock_testkit::{Certificates, RedisServer};

    use super::*;
    use crate::ground::ROOM;

    /// The servers' certificate, and behind it the authority's: they check each other's, too.
    fn chain(certificates: &Certificates) -> String {
        format!("{}{}", certificates.server(), certificates.authority())
    }

    fn client(url: &str, certificates: &Certificates) -> redis::Client {
        let trusted = redis::TlsCertificates { client_tls: None, root_cert: Some(certificates.authority().into()) };
        redis::Client::build_with_tls(url, trusted).unwrap()
    }

    fn nobody_talks_in_the_clear_to(server: &RedisServer) {
        let clients = server.command::<String>(&["CLIENT", "LIST"]).unwrap();
        assert!(!clients.contains(&format!("laddr={} ", server.addr())), "{clients}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sentinels_and_servers_speak_tls_through_a_failover() {
        let certificates = Certificates::new().unwrap();
        let redis = RedisSentinel::builder()
            .password("secret")
            .sentinel_password("watch")
            .tls(&chain(&certificates), certificates.key())
            .start()
            .unwrap();
        let sentinels: Vec<_> = redis.urls().iter().map(|url| client(url, &certificates)).collect();
        let master = format!("rediss://:secret@{}", RedisSentinel::NAME);
        let trusting = client(&master, &certificates);
        let connection = Connection::from_sentinel(sentinels.clone(), trusting, patient()).await.unwrap();
        let backend = token(connection).await;
        takes_and_releases(&*backend, &["a"]).await;
        let second = &redis.servers()[1];
        redis.fail_over().unwrap();
        until("the replica is the master", || redis.master().unwrap().addr() == second.addr()).await;
        takes_and_releases(&*backend, &["b"]).await;
        redis.servers().iter().chain(redis.sentinels()).for_each(nobody_talks_in_the_clear_to);

        // The system does not know the authority: neither that of the server, nor that of the sentinels.
        let doubting = redis::Client::open(master.as_str()).unwrap();
        let error = Connection::from_sentinel(sentinels, doubting, patient()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
        let error = Connection::open_sentinel(&redis.urls(), &master, patient()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
        assert!(error.to_string().contains("trust the server's authority"), "{error}");
    }

    #[tokio::test]
    async fn a_cluster_speaks_tls_also_while_slots_move() {
        let certificates = Certificates::new().unwrap();
        let cluster =
            RedisCluster::builder().password("secret").tls(&chain(&certificates), certificates.key()).start().unwrap();
        let seed = client(&cluster.urls()[1], &certificates);
        let backend = token(Connection::from_cluster(vec![seed], patient()).await.unwrap()).await;
        takes_and_releases(&*backend, &["a", "b", "c", "d"]).await;
        let slot = cluster.slot("hasp:a").unwrap();
        let from = cluster.master_of(slot).unwrap();
        cluster.move_slot(slot, (from + 1) % 3).unwrap();
        takes_and_releases(&*backend, &["a", "b", "c", "d"]).await;
        cluster.iter().for_each(nobody_talks_in_the_clear_to);

        // The system's certificates are read anew for each node, which takes its time.
        let patient = Config::new().with_request_limit(ROOM);
        let error = Connection::open_cluster(&cluster.urls()[..1], patient).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
        assert!(error.to_string().contains("trust the server's authority"), "{error}");
    }
}
