//! The fault lab: private servers that are kept warm, contenders in processes of their own, clocks that can be set, and a stage
//! for each scenario.

mod child;
mod contender;
mod protocol;
mod resource;
mod stage;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use lock_clock::Slot;
use lock_clock::{Clock, Clocks};
use lock_testkit::fault::Proxy;
use lock_testkit::{EtcdCluster, RedisServer, TempFolder, ZooKeeperEnsemble};

pub(crate) use self::child::run as run_contender;
pub(crate) use self::contender::{Acquiring, Claimed, Client, Contender, Held, Setup};
pub(crate) use self::protocol::{Answer, Resource};
pub(crate) use self::stage::{Figure, Gate, Stage};
use crate::stores::NODES;
use crate::{Failure, Store};

/// How long a step may take that needs no more than a lease to end. Wide, because machines are busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The servers of one lane, and its clocks. Scenarios that run at the same time need a lab each, because a step of the common
/// clock is a step for all in it.
pub(crate) struct Lab {
    program: PathBuf,
    clocks: Arc<Clocks>,
    redis: Clocked<RedisServer>,
    nodes: OnceLock<Vec<Clocked<RedisServer>>>,
    etcd: OnceLock<EtcdCluster>,
    zookeeper: OnceLock<ZooKeeperEnsemble>,
    // After the servers and the clocks, which use it.
    folder: TempFolder,
}

/// A server whose clock can be set.
pub(crate) struct Clocked<T> {
    pub(crate) server: T,
    pub(crate) clock: Slot,
}

impl Lab {
    /// Starts the one Redis; the other servers are started when they are wanted. `program` is this program, which is started
    /// again for each contender.
    ///
    /// # Errors
    ///
    /// If there is no redis-server, or the clocks cannot be set: a lab whose clocks do nothing would prove nothing.
    pub(crate) async fn start(program: &Path) -> Result<Self, Failure> {
        let folder = TempFolder::new("hasp-lab-")?;
        let clocks = Arc::new(Clocks::start_in(folder.path())?);
        let redis = clocked_redis(&clocks)?;
        let lab = Self {
            program: program.to_owned(),
            clocks,
            redis,
            nodes: OnceLock::new(),
            etcd: OnceLock::new(),
            zookeeper: OnceLock::new(),
            folder,
        };
        lab.prove_clocks().await?;
        Ok(lab)
    }

    pub(crate) fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// The lab's clock, by which its histories are written.
    pub(crate) fn now(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let clocks = Arc::clone(&self.clocks);
        move || {
            u64::try_from(clocks.lab_now().expect("Linux has had this clock since 2.6.28").as_nanos())
                .expect("a machine runs for less than 584 years")
        }
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Where a scenario puts its files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Clocks for one more process.
    pub(crate) fn slot(&self) -> Result<Slot, Failure> {
        Ok(self.clocks.slot()?)
    }

    pub(crate) fn redis(&self) -> &Clocked<RedisServer> {
        &self.redis
    }

    /// The five Redis servers of Redlock.
    pub(crate) fn nodes(&self) -> Result<&[Clocked<RedisServer>], Failure> {
        let start = || (0..NODES).map(|_| clocked_redis(&self.clocks)).collect();
        Ok(started(&self.nodes, start)?)
    }

    /// One member with a quick heartbeat. It reads the kernel's clock past the C library, so it cannot be set.
    pub(crate) fn etcd(&self) -> Result<&EtcdCluster, Failure> {
        Ok(started(&self.etcd, EtcdCluster::start)?)
    }

    /// One server with a short tick, which bounds how late it ends a session, and sessions as long as anybody asks for.
    pub(crate) fn zookeeper(&self) -> Result<&ZooKeeperEnsemble, Failure> {
        let start = || {
            ZooKeeperEnsemble::builder(1).tick(Duration::from_millis(200)).config("maxSessionTimeout", "60000").start()
        };
        Ok(started(&self.zookeeper, start)?)
    }

    /// A Redis of the scenario's own, with these lines of configuration, whose clock can be set.
    pub(crate) fn own_redis(&self, config: &[(&str, &str)]) -> Result<Clocked<RedisServer>, Failure> {
        let clock = self.slot()?;
        let builder = config.iter().fold(RedisServer::builder(), |builder, (name, value)| builder.config(name, value));
        let builder = clock.env().into_iter().fold(builder, |builder, (name, value)| builder.env(name, value));
        Ok(Clocked { server: builder.start()?, clock })
    }

    /// Where a strategy's clients go if nothing is said.
    pub(crate) fn place(&self, store: Store) -> Result<Place, Failure> {
        Ok(match store {
            Store::Process => Place { store, addrs: Vec::new() },
            Store::Redis => Place::redis(&[&self.redis().server]),
            Store::Nodes => Place::nodes(&self.nodes()?.iter().map(|node| &node.server).collect::<Vec<_>>()),
            Store::Etcd => Place::etcd(self.etcd()?),
            Store::ZooKeeper => Place::zookeeper(self.zookeeper()?),
        })
    }

    /// Proves that a redis-server and a contender see their clocks.
    async fn prove_clocks(&self) -> Result<(), Failure> {
        self.redis.clock.prove(Clock::Wall, || {
            let (seconds, micros): (u64, u64) = self.redis.server.command(&["TIME"]).map_err(io::Error::other)?;
            Ok(Duration::from_secs(seconds) + Duration::from_micros(micros))
        })?;
        contender::prove_clocks(self).await
    }
}

/// The servers that a client goes to.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    store: Store,
    addrs: Vec<SocketAddr>,
}

impl Place {
    /// Redis servers for a strategy on one Redis.
    pub(crate) fn redis(servers: &[&RedisServer]) -> Self {
        Self { store: Store::Redis, addrs: servers.iter().map(|server| server.addr()).collect() }
    }

    /// Redis servers for Redlock.
    pub(crate) fn nodes(servers: &[&RedisServer]) -> Self {
        Self { store: Store::Nodes, ..Self::redis(servers) }
    }

    pub(crate) fn etcd(cluster: &EtcdCluster) -> Self {
        Self { store: Store::Etcd, addrs: cluster.members().iter().map(lock_testkit::EtcdMember::addr).collect() }
    }

    pub(crate) fn zookeeper(ensemble: &ZooKeeperEnsemble) -> Self {
        Self { store: Store::ZooKeeper, addrs: (0..ensemble.size()).map(|member| ensemble.addr(member)).collect() }
    }

    /// One of the servers alone.
    pub(crate) fn only(&self, server: usize) -> Self {
        Self { addrs: vec![self.addrs[server]], ..*self }
    }

    /// All of the servers but one.
    pub(crate) fn without(mut self, server: usize) -> Self {
        self.addrs.remove(server);
        self
    }

    fn proxies(&self) -> io::Result<Vec<Proxy>> {
        let start = match self.store {
            Store::Process => return Ok(Vec::new()),
            Store::Redis | Store::Nodes => Proxy::start,
            Store::Etcd => Proxy::start_etcd,
            Store::ZooKeeper => Proxy::start_zookeeper,
        };
        self.addrs.iter().map(|addr| start(*addr)).collect()
    }

    fn urls(&self) -> Vec<String> {
        self.urls_at(self.addrs.iter().copied())
    }

    fn urls_at(&self, addrs: impl Iterator<Item = SocketAddr>) -> Vec<String> {
        let scheme = match self.store {
            Store::Process | Store::ZooKeeper => "",
            Store::Redis | Store::Nodes => "redis://",
            Store::Etcd => "http://",
        };
        addrs.map(|addr| format!("{scheme}{addr}")).collect()
    }
}

fn clocked_redis(clocks: &Clocks) -> io::Result<Clocked<RedisServer>> {
    let clock = clocks.slot()?;
    let builder =
        clock.env().into_iter().fold(RedisServer::builder(), |builder, (name, value)| builder.env(name, value));
    Ok(Clocked { server: builder.start()?, clock })
}

fn started<T>(cell: &OnceLock<T>, start: impl FnOnce() -> io::Result<T>) -> io::Result<&T> {
    if cell.get().is_none() {
        drop(cell.set(start()?));
    }
    Ok(cell.get().expect("it has just been set, by us or by another"))
}
