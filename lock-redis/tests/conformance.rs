//! The suite on a real server: each strategy, over each kind of connection.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Backend, Guarantees, Result};
use lock_redis::{Config, Connection, Reentrant, ReentrantOptions, Token, TokenOptions, Unlock};
use lock_testkit::suite::{self, Clock, Fixture};
use lock_testkit::{RedisCluster, RedisSentinel, RedisServer};

fn main() {
    let server = RedisServer::start().expect("redis-server starts");
    let ways: [(&str, Connect); 8] = [
        ("token over a connection", |url| Box::pin(async move { token(open(url).await?).await })),
        ("token over a pool", |url| Box::pin(async move { token(over_pool(url).await?).await })),
        ("token over a manager", |url| Box::pin(async move { token(over_manager(url).await?).await })),
        ("token over a manager with pushes", |url| Box::pin(async move { token(over_pushes(url).await?).await })),
        ("token unlocked by WATCH", |url| Box::pin(async move { watch(open(url).await?.with_pool(pool(url))).await })),
        ("token unlocked by WATCH, all over a pool", |url| Box::pin(async move { watch(over_pool(url).await?).await })),
        ("reentrant over a connection", |url| Box::pin(async move { reentrant(open(url).await?).await })),
        ("reentrant over a pool", |url| Box::pin(async move { reentrant(over_pool(url).await?).await })),
    ];
    let under_sentinel: [(&str, Connect); 2] = [
        ("token under Sentinel", |urls| Box::pin(async move { token(over_sentinel(urls).await?).await })),
        ("reentrant under Sentinel", |urls| Box::pin(async move { reentrant(over_sentinel(urls).await?).await })),
    ];
    let with_replica: [(&str, Connect); 2] = [
        ("token that a replica has", |url| Box::pin(async move { replicated(open(url).await?).await })),
        ("reentrant that a replica has", |url| Box::pin(async move { replicated_reentrant(open(url).await?).await })),
    ];
    let replicated =
        RedisServer::builder().config("repl-diskless-sync-delay", "0").start().expect("redis-server starts");
    let replica = RedisServer::builder().config("replicaof", &format!("127.0.0.1 {}", replicated.port()));
    let replica = replica.start().expect("redis-server starts");
    let in_cluster: [(&str, Connect); 2] = [
        ("token in a cluster", |urls| Box::pin(async move { token(over_cluster(urls).await?).await })),
        ("reentrant in a cluster", |urls| Box::pin(async move { reentrant(over_cluster(urls).await?).await })),
    ];
    let cluster = cluster();
    let sentinel = sentinel();
    let places = [
        (server.url(), &ways[..]),
        (replicated.url(), &with_replica[..]),
        (sentinel.urls().join(","), &under_sentinel[..]),
        (cluster.urls().join(","), &in_cluster[..]),
    ];
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let fixtures = places.iter().flat_map(|(urls, ways)| ways.iter().map(|way| (urls.clone(), way)));
    let fixtures = fixtures.map(|(urls, (name, connect))| {
        let backend = runtime.block_on(connect(&urls)).expect("servers that have just started");
        let guarantees = backend.guarantees();
        Arc::new(OnRedis { name, connect: *connect, urls, guarantees }) as Arc<dyn Fixture>
    });
    let conclusion = suite::run(fixtures);
    // `exit` runs no destructors, so the servers are ended here.
    drop((server, replica, replicated, sentinel, cluster));
    conclusion.exit();
}

type Connect = fn(&str) -> Pin<Box<dyn Future<Output = Result<Arc<dyn Backend>>> + Send + '_>>;

async fn token(connection: Connection) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Token::new(connection, TokenOptions::new()).await?))
}

async fn replicated(connection: Connection) -> Result<Arc<dyn Backend>> {
    let options = TokenOptions::new().with_min_replicas(1, Duration::from_secs(10));
    Ok(Arc::new(Token::new(connection, options).await?))
}

async fn replicated_reentrant(connection: Connection) -> Result<Arc<dyn Backend>> {
    let options = ReentrantOptions::new().with_min_replicas(1, Duration::from_secs(10));
    Ok(Arc::new(Reentrant::with_options(connection, options).await?))
}

async fn watch(connection: Connection) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Token::new(connection, TokenOptions::new().with_unlock(Unlock::Watch)).await?))
}

async fn reentrant(connection: Connection) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Reentrant::new(connection).await?))
}

async fn open(url: &str) -> Result<Connection> {
    Connection::open(url, Config::new()).await
}

async fn over_pool(url: &str) -> Result<Connection> {
    Connection::from_pool(pool(url), Config::new()).await
}

async fn over_manager(url: &str) -> Result<Connection> {
    let manager = redis::Client::open(url).expect("a URL").get_connection_manager().await.expect("the server runs");
    Connection::from_manager(manager, Config::new()).await
}

async fn over_pushes(url: &str) -> Result<Connection> {
    let (sender, pushes) = tokio::sync::mpsc::unbounded_channel();
    let config = redis::aio::ConnectionManagerConfig::new().set_push_sender(sender);
    let client = redis::Client::open(format!("{url}?protocol=resp3")).expect("a URL");
    let manager = client.get_connection_manager_with_config(config).await.expect("the server runs");
    Connection::from_manager_with_pushes(manager, pushes, Config::new()).await
}

/// Servers that are not replaced because this machine is busy.
fn sentinel() -> RedisSentinel {
    let redis = RedisSentinel::start().expect("redis-server starts");
    for sentinel in redis.sentinels() {
        let patient = ["SENTINEL", "SET", RedisSentinel::NAME, "down-after-milliseconds", "600000"];
        sentinel.command::<()>(&patient).expect("a sentinel that has just started");
    }
    redis
}

/// Nodes that are not replaced because this machine is busy.
fn cluster() -> RedisCluster {
    let cluster = RedisCluster::start().expect("redis-server starts");
    for node in cluster.iter() {
        let patient = ["CONFIG", "SET", "cluster-node-timeout", "600000"];
        node.command::<()>(&patient).expect("a node that has just started");
    }
    cluster
}

async fn over_cluster(urls: &str) -> Result<Connection> {
    let nodes: Vec<_> = urls.split(',').collect();
    Connection::open_cluster(&nodes, Config::new()).await
}

async fn over_sentinel(urls: &str) -> Result<Connection> {
    let sentinels: Vec<_> = urls.split(',').collect();
    Connection::open_sentinel(&sentinels, &format!("redis://{}", RedisSentinel::NAME), Config::new()).await
}

fn pool(url: &str) -> deadpool_redis::Pool {
    deadpool_redis::Config::from_url(url).create_pool(Some(deadpool_redis::Runtime::Tokio1)).expect("a URL")
}

struct OnRedis {
    name: &'static str,
    connect: Connect,
    urls: String,
    guarantees: Guarantees,
}

#[async_trait]
impl Fixture for OnRedis {
    fn name(&self) -> &str {
        self.name
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    fn clock(&self) -> Clock {
        Clock::Real
    }

    async fn connect(&self) -> Arc<dyn Backend> {
        (self.connect)(&self.urls).await.expect("the servers run")
    }
}
