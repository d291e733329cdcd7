use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::Pool;
use lock_core::{Effect, Error, ErrorKind, Result};
use redis::aio::ConnectionManager;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, Cmd, ConnectionInfo, FromRedisValue, Pipeline, ProtocolVersion, PushInfo};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::AbortHandle;

use crate::Config;
use crate::cluster::Cluster;
use crate::error::{Failure, explain};
use crate::links::{Links, Server};
use crate::pinned::Pinned;
use crate::probe;
use crate::sentinel::Sentinels;
use crate::subscriptions::{Subscription, Subscriptions};
use crate::transport::{Request, Transport, Way, take};

/// How to reach one Redis. Cheap to clone; clones, and the locks made from them, share what is underneath.
///
/// | made by | requests go over | waiters are |
/// | --- | --- | --- |
/// | [`open`](Connection::open), [`from_client`](Connection::from_client) | one multiplexed connection of its own | woken by push |
/// | [`open_sentinel`](Connection::open_sentinel), [`from_sentinel`](Connection::from_sentinel) | one multiplexed connection of its own, to whichever server is the master | woken by push |
/// | [`open_cluster`](Connection::open_cluster), [`from_cluster`](Connection::from_cluster) | two multiplexed connections of its own per master of a Redis Cluster | woken by push |
/// | [`from_manager_with_pushes`](Connection::from_manager_with_pushes) | your multiplexed connection | woken by push |
/// | [`from_manager`](Connection::from_manager) | your multiplexed connection | polling |
/// | [`from_pool`](Connection::from_pool) | a connection of your pool for each request | polling |
///
/// Prefer the first: a pool is 5 to 8 times slower in throughput. A [pool](Connection::with_pool) beside it serves what needs
/// a connection to itself.
///
/// # Examples
///
/// ```no_run
/// # async fn example(pool: deadpool_redis::Pool) -> lock_core::Result<()> {
/// use std::time::Duration;
///
/// use lock_core::Locks;
/// use lock_redis::{Config, Connection, Reentrant, Token, TokenOptions, Unlock};
///
/// let config = Config::new().with_request_limit(Duration::from_millis(500));
/// let connection = Connection::open("redis://127.0.0.1", config).await?;
/// let jobs = Locks::new(Token::new(connection.clone(), TokenOptions::new().with_prefix("jobs:")).await?);
/// let trees = Locks::new(Reentrant::new(connection.clone()).await?);
///
/// let by_watch = TokenOptions::new().with_unlock(Unlock::Watch);
/// let watched = Locks::new(Token::new(connection.with_pool(pool), by_watch).await?);
/// # Ok(())
/// # }
/// ```
///
/// # What it asks of the server
///
/// Every constructor talks to the server: it checks that it is Redis 6.2 or newer, loads the scripts, and warns (with
/// `tracing`) if its `maxmemory-policy` may evict locks.
#[derive(Clone)]
pub struct Connection {
    transport: Arc<Transport>,
    subscriptions: Option<Arc<Subscriptions>>,
    pinned: Option<Pool>,
    config: Config,
    _pump: Option<Arc<Pump>>,
}

impl Connection {
    /// Opens a multiplexed connection with pushes to the server at `url`.
    ///
    /// A URL is `redis://user:password@host:port/db`, `rediss://...` with TLS (feature `tls`), or
    /// `redis+unix:///path/of/socket?db=0&user=name&pass=word`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a URL of another form, `Unavailable` if the server cannot be reached, `Rejected` if it refuses the
    /// credentials or the user may not run scripts, `Unsupported` if it is too old.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a connection that has been opened is closed.
    pub async fn open(url: &str, config: Config) -> Result<Self> {
        let client = Client::open(url).map_err(|error| explain(&error.into(), "redis", "connect"))?;
        Self::from_client(client, config).await
    }

    /// Opens a multiplexed connection with pushes, with the address, credentials and certificates of `client`.
    ///
    /// It speaks RESP3 whatever the client's settings say. Keep-alive and `TCP_USER_TIMEOUT` are set unless the client
    /// sets them.
    ///
    /// # Errors
    ///
    /// As for [`open`](Connection::open).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a connection that has been opened is closed.
    #[allow(clippy::needless_pass_by_value, reason = "it takes what its sibling constructors take")]
    pub async fn from_client(client: Client, config: Config) -> Result<Self> {
        let client = Client::open(with_settings(client.get_connection_info()))
            .map_err(|error| explain(&error.into(), "redis", "connect"))?;
        Self::own(Server::At(client), config).await
    }

    /// Opens connections with pushes to the masters of a Redis Cluster; `nodes` are the URLs of some of its nodes.
    ///
    /// Each lock lives on the node that has its slot, with all that belongs to it. Moved slots and failovers are followed;
    /// while they last, requests fail with `Unavailable`, which the driver tries again. A failover may lose locks: see
    /// [`Token`](crate::Token). Releases are told on sharded channels where the servers have them (7.0), so that a message goes
    /// to one node and not to all; they use a connection of their own per node.
    ///
    /// # Errors
    ///
    /// As for [`open`](Connection::open); `InvalidInput` without a URL, or for that of a socket.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a connection that has been opened is closed.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> lock_core::Result<()> {
    /// use lock_redis::{Config, Connection, Token, TokenOptions};
    ///
    /// let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// let token = Token::new(Connection::open_cluster(&nodes, Config::new()).await?, TokenOptions::new()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_cluster(nodes: &[impl AsRef<str> + Sync], config: Config) -> Result<Self> {
        let open = |url: &str| Client::open(url).map_err(|error| explain(&error.into(), "redis", "connect"));
        Self::from_cluster(nodes.iter().map(|url| open(url.as_ref())).collect::<Result<_>>()?, config).await
    }

    /// The same with clients of some nodes. The credentials and certificates of the first are used for all.
    ///
    /// # Errors
    ///
    /// As for [`open_cluster`](Connection::open_cluster).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a connection that has been opened is closed.
    #[allow(clippy::needless_pass_by_value, reason = "it takes what its sibling constructors take")]
    pub async fn from_cluster(nodes: Vec<Client>, config: Config) -> Result<Self> {
        check(&config)?;
        #[cfg(feature = "tls")]
        provide_cryptography();
        let seeds: Vec<_> = nodes.iter().map(|node| with_settings(node.get_connection_info())).collect();
        let subscriptions = Arc::new(Subscriptions::default());
        let Some(cluster) = Cluster::new(&seeds, config.request_limit, Arc::clone(&subscriptions)) else {
            let says = "a cluster needs the URL of at least one node, and none of a socket: redis://host:port";
            return Err(Error::new(ErrorKind::InvalidInput, Effect::None, "redis", "connect", says));
        };
        Self::new(Way::Cluster(Box::new(cluster)), Some(subscriptions), config, None).await
    }

    async fn own(server: Server, config: Config) -> Result<Self> {
        check(&config)?;
        #[cfg(feature = "tls")]
        provide_cryptography();
        let subscriptions = Arc::new(Subscriptions::default());
        let links = Links::new(server, config.request_limit, Arc::clone(&subscriptions));
        Self::new(Way::Own(Arc::new(links)), Some(subscriptions), config, None).await
    }

    /// Opens a multiplexed connection with pushes to the master that the sentinels at `sentinels` watch. `master` is a URL as
    /// for [`open`](Connection::open), with the master's name under Sentinel in the place of the host:
    /// `redis://user:password@mymaster/0`. The sentinels' own credentials are in their URLs.
    ///
    /// All sentinels are asked at once, and the majority decides. They are asked again whenever the connection is lost or a
    /// request is refused because the server is a replica; such a request fails with `Unavailable`, which the driver tries
    /// again. A failover may lose locks: see [`Token`](crate::Token).
    ///
    /// # Errors
    ///
    /// As for [`open`](Connection::open); `Unavailable` too if the sentinels know no such master.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a connection that has been opened is closed.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> lock_core::Result<()> {
    /// use lock_redis::{Config, Connection, Token, TokenOptions};
    ///
    /// let sentinels = ["redis://10.0.0.1:26379", "redis://10.0.0.2:26379", "redis://10.0.0.3:26379"];
    /// let connection = Connection::open_sentinel(&sentinels, "redis://:secret@mymaster", Config::new()).await?;
    /// let token = Token::new(connection, TokenOptions::new()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_sentinel(sentinels: &[impl AsRef<str> + Sync], master: &str, config: Config) -> Result<Self> {
        let open = |url: &str| Client::open(url).map_err(|error| explain(&error.into(), "redis", "connect"));
        let sentinels = sentinels.iter().map(|url| open(url.as_ref())).collect::<Result<_>>()?;
        Self::from_sentinel(sentinels, open(master)?, config).await
    }

    /// The same with clients of the program's own, for certificates and other settings. The host of `master` is the master's
    /// name under Sentinel.
    ///
    /// # Errors
    ///
    /// As for [`open_sentinel`](Connection::open_sentinel).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a connection that has been opened is closed.
    #[allow(clippy::needless_pass_by_value, reason = "it takes what its sibling constructors take")]
    pub async fn from_sentinel(sentinels: Vec<Client>, master: Client, config: Config) -> Result<Self> {
        let Some(sentinels) = Sentinels::new(sentinels, with_settings(master.get_connection_info())) else {
            let says = "the URL of a socket names no master; write the master's name as the host: redis://mymaster";
            return Err(Error::new(ErrorKind::InvalidInput, Effect::None, "redis", "connect", says));
        };
        Self::own(Server::Under(sentinels), config).await
    }

    /// Shares a multiplexed connection that the program already has. Its pushes go elsewhere, so waiters poll.
    ///
    /// How it reconnects is the manager's affair: one that has been turned away (by a password, or by `maxclients`) keeps
    /// that answer, and one behind a silent network waits for the kernel. [`open`](Connection::open) copes with both.
    ///
    /// # Errors
    ///
    /// As for [`open`](Connection::open).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is kept.
    pub async fn from_manager(manager: ConnectionManager, config: Config) -> Result<Self> {
        check(&config)?;
        Self::new(Way::Manager(manager), None, config, None).await
    }

    /// Shares a multiplexed connection that the program already has, and takes over the receiver of its pushes
    /// (`ConnectionManagerConfig::set_push_sender` with the sender of an unbounded channel).
    ///
    /// Two conditions: `set_automatic_resubscription` must be off, because with it answers get mixed up after a reconnect
    /// and a lock may be granted twice; and pushes end with the runtime that this is called on, after which waiters ask
    /// once in 0.8 s.
    ///
    /// # Errors
    ///
    /// As for [`open`](Connection::open).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the receiver is dropped with the future.
    pub async fn from_manager_with_pushes(
        manager: ConnectionManager,
        pushes: UnboundedReceiver<PushInfo>,
        config: Config,
    ) -> Result<Self> {
        check(&config)?;
        let subscriptions = Arc::new(Subscriptions::default());
        let pump = tokio::spawn(pump(pushes, Arc::clone(&subscriptions)));
        let pump = Pump(pump.abort_handle());
        Self::new(Way::Manager(manager), Some(subscriptions), config, Some(Arc::new(pump))).await
    }

    /// Takes a connection of `pool` for each request. Waiters poll.
    ///
    /// The pool's connections have a response limit of their own, 500 ms in redis 1.8; the shorter of that and
    /// [`Config::request_limit`] counts.
    ///
    /// # Errors
    ///
    /// As for [`open`](Connection::open).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is kept.
    pub async fn from_pool(pool: Pool, config: Config) -> Result<Self> {
        check(&config)?;
        let pinned = pool.clone();
        Ok(Self::new(Way::Pool(pool), None, config, None).await?.with_pool(pinned))
    }

    /// The same connection with a pool of the same server and database beside it, for what needs a connection to itself
    /// ([`Unlock::Watch`](crate::Unlock::Watch); with a manager also
    /// [`min_replicas`](crate::TokenOptions::with_min_replicas)). It does not follow a failover: under Sentinel unlock by
    /// script.
    #[must_use]
    pub fn with_pool(mut self, pool: Pool) -> Self {
        self.pinned = Some(pool);
        self
    }

    async fn new(
        way: Way,
        subscriptions: Option<Arc<Subscriptions>>,
        config: Config,
        pump: Option<Arc<Pump>>,
    ) -> Result<Self> {
        let transport = Arc::new(Transport::new(way, config.request_limit));
        let connection = Self { transport, subscriptions, pinned: None, config, _pump: pump };
        probe::server(&connection).await?;
        Ok(connection)
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pinned.as_ref()
    }

    /// A connection to itself, to the server that has `key`; none where there is no way to get one.
    pub(crate) async fn pin(&self, key: &str) -> Result<Option<Pinned>, Failure> {
        match (self.transport.pin(key).await?, &self.pinned) {
            (None, Some(pool)) => take(pool, self.config.request_limit).await.map(Pinned::Pool).map(Some),
            (pinned, _) => Ok(pinned),
        }
    }

    /// The cluster behind it, if it is one.
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        self.transport.cluster()
    }

    /// Whether messages go to those only who listen at the node of their slot.
    pub(crate) fn is_sharded(&self) -> bool {
        self.cluster().is_some_and(Cluster::is_sharded)
    }

    /// Whether pushes can come.
    pub(crate) fn has_pushes(&self) -> bool {
        self.subscriptions.is_some()
    }

    pub(crate) async fn command<T: FromRedisValue + Send>(&self, command: &Cmd) -> Result<T, Failure> {
        self.transport.send(Request::One(command)).await
    }

    pub(crate) async fn pipeline<T: FromRedisValue + Send>(&self, pipeline: &Pipeline) -> Result<T, Failure> {
        self.transport.send(Request::Many(pipeline)).await
    }

    /// Subscribes and unsubscribes once, to see whether it may.
    pub(crate) async fn try_channel(&self, channel: &str) -> Result<(), Failure> {
        let channel = [Arc::from(channel)];
        self.transport.subscribe(&channel).await?;
        self.transport.unsubscribe(&channel).await
    }

    /// Joins those who wait for messages on `channel`.
    pub(crate) async fn join(&self, subscriptions: &Arc<Subscriptions>, channel: &str) -> Subscription {
        subscriptions.join(channel, &self.transport, self.config.request_limit).await
    }

    pub(crate) fn subscriptions(&self) -> Option<&Arc<Subscriptions>> {
        self.subscriptions.as_ref()
    }

    /// Keeps the subscriptions going after the runtime of their owner has ended.
    pub(crate) fn tend(&self, subscriptions: &Arc<Subscriptions>) {
        subscriptions.tend(&self.transport);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("transport", &self.transport)
            .field("pushes", &self.has_pushes())
            .field("pool", &self.pinned.is_some())
            .field("config", &self.config)
            .finish()
    }
}

fn check(config: &Config) -> Result<()> {
    for (name, duration) in [("request_limit", config.request_limit), ("poll_interval", config.poll_interval)] {
        if duration.is_zero() {
            let says = format!("`{name}` is zero; give it a duration of at least a few milliseconds");
            return Err(Error::new(ErrorKind::InvalidInput, Effect::None, "redis", "connect", says));
        }
    }
    Ok(())
}

/// RESP3 for the pushes; no delay, because requests are small; and a dead peer is noticed by the kernel.
fn with_settings(info: &ConnectionInfo) -> ConnectionInfo {
    const PROBE_AFTER: Duration = Duration::from_secs(10);
    const GIVE_UP_AFTER: Duration = Duration::from_secs(20);

    let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let mut tcp = info.tcp_settings().clone().set_nodelay(true);
    if tcp.keepalive().is_none() {
        tcp = tcp.set_keepalive(TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_AFTER / 2));
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    if tcp.user_timeout().is_none() {
        tcp = tcp.set_user_timeout(GIVE_UP_AFTER);
    }
    info.clone().set_redis_settings(redis).set_tcp_settings(tcp)
}

/// Without a provider rustls panics; a program's own goes first.
#[cfg(feature = "tls")]
fn provide_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread has just installed one, which is as good.
        let _installed_meanwhile = rustls::crypto::ring::default_provider().install_default();
    }
}

async fn pump(mut pushes: UnboundedReceiver<PushInfo>, subscriptions: Arc<Subscriptions>) {
    while let Some(push) = pushes.recv().await {
        subscriptions.pushed(push);
    }
}

/// The task that takes a user's pushes; it ends with the last clone of the connection.
struct Pump(AbortHandle);

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.abort();
    }
}
