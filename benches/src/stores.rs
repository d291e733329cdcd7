use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lock_testkit::{EtcdCluster, RedisNodes, RedisServer, ZooKeeperEnsemble};

/// Where a strategy keeps its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a new store must be placed everywhere")]
pub enum Store {
    /// In a table of the process.
    Process,
    /// In one Redis.
    Redis,
    /// On five Redis servers that know nothing of each other.
    Nodes,
    /// In an etcd of one member.
    Etcd,
    /// In a ZooKeeper of one server.
    ZooKeeper,
}

/// The private servers of a run. One Redis is started at once, the others when the first strategy wants them. Cheap to clone;
/// they end with the last clone.
#[derive(Clone)]
pub struct Stores(Arc<Inner>);

struct Inner {
    redis: RedisServer,
    nodes: OnceLock<RedisNodes>,
    etcd: OnceLock<EtcdCluster>,
    zookeeper: OnceLock<ZooKeeperEnsemble>,
}

/// The number that Redlock's own description takes.
pub(crate) const NODES: usize = 5;

/// ZooKeeper's own default: sessions of 30 s need it, because a session lasts 20 ticks at most.
const TICK: Duration = Duration::from_secs(2);

impl Stores {
    /// Starts the Redis.
    ///
    /// # Errors
    ///
    /// If there is no redis-server, or it does not start.
    pub fn start() -> io::Result<Self> {
        let redis = RedisServer::start()?;
        let (nodes, etcd, zookeeper) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Ok(Self(Arc::new(Inner { redis, nodes, etcd, zookeeper })))
    }

    /// The one Redis.
    #[must_use]
    pub fn redis(&self) -> &RedisServer {
        &self.0.redis
    }

    /// Five independent Redis servers.
    ///
    /// # Errors
    ///
    /// If they do not start.
    pub fn nodes(&self) -> io::Result<&RedisNodes> {
        started(&self.0.nodes, || RedisNodes::start(NODES))
    }

    /// An etcd of one member.
    ///
    /// # Errors
    ///
    /// If there is no etcd, or it does not start.
    pub fn etcd(&self) -> io::Result<&EtcdCluster> {
        started(&self.0.etcd, EtcdCluster::start)
    }

    /// A ZooKeeper of one server.
    ///
    /// # Errors
    ///
    /// If there is no ZooKeeper, or it does not start.
    pub fn zookeeper(&self) -> io::Result<&ZooKeeperEnsemble> {
        started(&self.0.zookeeper, || ZooKeeperEnsemble::builder(1).tick(TICK).start())
    }

    /// The addresses of a store as its clients want them, one for each server.
    ///
    /// # Errors
    ///
    /// If the servers cannot be started.
    pub fn urls(&self, store: Store) -> io::Result<Vec<String>> {
        Ok(match store {
            Store::Process => Vec::new(),
            Store::Redis => vec![self.redis().url()],
            Store::Nodes => self.nodes()?.urls(),
            Store::Etcd => self.etcd()?.urls(),
            Store::ZooKeeper => vec![self.zookeeper()?.hosts()],
        })
    }
}

fn started<T>(cell: &OnceLock<T>, start: impl FnOnce() -> io::Result<T>) -> io::Result<&T> {
    if let Some(started) = cell.get() {
        return Ok(started);
    }
    let started = start()?;
    // If another was quicker, this one ends here.
    Ok(cell.get_or_init(|| started))
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stores").field("redis", &self.0.redis).finish_non_exhaustive()
    }
}
