//! The strategies under test, and how each comes to its store.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lock_core::{Backend, Effect, Error, ErrorKind, Guarantees, Locks, Options};
use lock_etcd::Etcd;
use lock_memory::Memory;
use lock_naive::{BlindDelete, GetSet, SetnxExpire};
use lock_redis::{Config, Connection, Reentrant, Token, TokenOptions, Unlock};
use lock_redlock::{Redlock, RedlockOptions};
use lock_zookeeper::ZooKeeper;

use crate::raw::{self, FloorKind};
use crate::{Failure, Stores};

/// A way of locking that is compared with the others.
///
/// A new strategy is one more entry in [`Strategy::all`].
#[derive(Clone, Copy)]
pub struct Strategy {
    name: &'static str,
    peer: &'static str,
    summary: &'static str,
    floor: Option<FloorKind>,
    connect: Connect,
}

/// Makes a backend for a client that sits there.
pub type Connect = for<'a> fn(&'a Seat) -> BoxFuture<'a, lock_core::Result<Arc<dyn Backend>>>;

/// Where a client sits: how it comes to the store, and what its wall clock says.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The URL of the Redis, or of a proxy in front of it.
    pub url: String,
    /// The servers of the strategies that keep their locks elsewhere.
    pub stores: Stores,
    /// The table of the strategies that keep their locks in the process: all clients of one cell share it.
    pub memory: Memory,
    /// By how much the client's wall clock is fast.
    pub clock_ahead: Duration,
    /// How long one request may take.
    pub request_limit: Duration,
}

impl Seat {
    /// A client of `server` with the right time.
    #[must_use]
    pub fn at(stores: &Stores, memory: &Memory) -> Self {
        Self {
            url: stores.redis().url(),
            stores: stores.clone(),
            memory: memory.clone(),
            clock_ahead: Duration::ZERO,
            request_limit: Duration::from_secs(1),
        }
    }

    fn naive(&self) -> lock_naive::Config {
        lock_naive::Config::new().with_request_limit(self.request_limit)
    }

    /// With the longest limit per node that there is: a scenario's leases are short, and the machine may be busy.
    async fn redlock(&self) -> lock_core::Result<Redlock> {
        let urls = self.stores.nodes().map_err(|error| not_started("redlock", &error))?.urls();
        let options = RedlockOptions::new().with_node_limit(Duration::from_millis(500));
        Redlock::open(&urls, Config::new().with_request_limit(self.request_limit), options).await
    }

    async fn redis(&self) -> lock_core::Result<Connection> {
        Connection::open(&self.url, Config::new().with_request_limit(self.request_limit)).await
    }
}

impl Strategy {
    /// A strategy of this name. `floor` sends the raw commands over the same kind of connection.
    #[must_use]
    pub const fn new(
        name: &'static str,
        peer: &'static str,
        summary: &'static str,
        floor: Option<FloorKind>,
        connect: Connect,
    ) -> Self {
        Self { name, peer, summary, floor, connect }
    }

    /// Every strategy, from the simplest to the strongest.
    #[must_use]
    pub fn all() -> Vec<Self> {
        vec![
            Self::new("memory", "hasp-Memory", "a table in the process", None, |seat| {
                let memory: Arc<dyn Backend> = Arc::new(seat.memory.clone());
                async move { Ok(memory) }.boxed()
            }),
            Self::new(
                "naive-setnx-expire",
                "hasp-SetnxExpire",
                "SETNX, then EXPIRE; GET, compare, DEL",
                Some(FloorKind::SetNx),
                |seat| async { backend(SetnxExpire::connect(&seat.url).await?.with_config(seat.naive())) }.boxed(),
            ),
            Self::new(
                "naive-getset",
                "hasp-GetSet",
                "SETNX of an expiry stamp, GETSET of a stale one; GET, compare, DEL",
                Some(FloorKind::SetNx),
                |seat| {
                    let ahead = seat.clock_ahead;
                    let clock = Arc::new(move || SystemTime::now() + ahead);
                    async { backend(GetSet::connect(&seat.url).await?.with_clock(clock).with_config(seat.naive())) }
                        .boxed()
                },
            ),
            Self::new(
                "naive-blind-delete",
                "hasp-BlindDelete",
                "SET NX PX; DEL, whoever holds",
                Some(FloorKind::SetNx),
                |seat| async { backend(BlindDelete::connect(&seat.url).await?.with_config(seat.naive())) }.boxed(),
            ),
            Self::new(
                "redis-token",
                "hasp-Token",
                "script: SET NX PX and a fencing token; script: compare and delete",
                Some(FloorKind::SetNx),
                |seat| async { backend(Token::new(seat.redis().await?, TokenOptions::new()).await?) }.boxed(),
            ),
            Self::new(
                "redis-token-watch",
                "hasp-Token-watch",
                "as redis-token; WATCH, GET, compare, MULTI, DEL, EXEC on a pinned connection",
                Some(FloorKind::SetNx),
                |seat| {
                    async {
                        let connection = seat.redis().await?.with_pool(pool(&seat.url, "redis-token-watch")?);
                        backend(Token::new(connection, TokenOptions::new().with_unlock(Unlock::Watch)).await?)
                    }
                    .boxed()
                },
            ),
            Self::new(
                "redis-reentrant",
                "hasp-Reentrant",
                "Redisson's hash of owners and counts, by scripts; a fencing token",
                Some(FloorKind::SetNx),
                |seat| async { backend(Reentrant::new(seat.redis().await?).await?) }.boxed(),
            ),
            Self::new(
                "redlock",
                "hasp-Redlock",
                "as redis-token on five independent Redis servers, a majority decides",
                None,
                |seat| async { backend(seat.redlock().await?) }.boxed(),
            ),
            Self::new(
                "redlock-fenced",
                "hasp-Redlock-fenced",
                "as redlock; a second round mints a fencing token",
                None,
                |seat| async { backend(seat.redlock().await?.fenced()) }.boxed(),
            ),
            Self::new("etcd", "hasp-Etcd", "a key under a lease, in order of create revision", None, |seat| {
                let urls = seat.stores.etcd().map(lock_testkit::EtcdCluster::urls);
                async { backend(Etcd::connect(urls.map_err(|error| not_started("etcd", &error))?)?) }.boxed()
            }),
            Self::new(
                "zookeeper",
                "hasp-ZooKeeper",
                "an ephemeral sequential node, in order of creation",
                None,
                |seat| {
                    let hosts = seat.stores.zookeeper().map(lock_testkit::ZooKeeperEnsemble::hosts);
                    async {
                        let hosts = hosts.map_err(|error| not_started("zookeeper", &error))?;
                        backend(ZooKeeper::connect(&hosts).await?)
                    }
                    .boxed()
                },
            ),
        ]
    }

    /// The strategies of these names, in this order; all of them if none is named.
    ///
    /// # Errors
    ///
    /// If there is none of a name: the text lists those that there are.
    pub fn named(names: &[String]) -> Result<Vec<Self>, Unknown> {
        let all = Self::all();
        if names.is_empty() {
            return Ok(all);
        }
        let find = |name: &String| {
            let found = all.iter().find(|strategy| strategy.name == name).copied();
            found.ok_or_else(|| Unknown { name: name.clone(), known: all.iter().map(|known| known.name).collect() })
        };
        names.iter().map(find).collect()
    }

    /// Its name, as its backend has it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it keeps its locks in the one Redis.
    #[must_use]
    pub const fn is_on_one_redis(&self) -> bool {
        self.floor.is_some()
    }

    /// Its name beside lock libraries of other makers.
    #[must_use]
    pub const fn peer(&self) -> &'static str {
        self.peer
    }

    /// What it does, in half a line.
    #[must_use]
    pub const fn summary(&self) -> &'static str {
        self.summary
    }

    /// The raw commands over the same kind of connection; none where they have not been worked out.
    #[must_use]
    pub const fn floor(&self) -> Option<FloorKind> {
        self.floor
    }

    /// Locks of a new client, with connections of its own.
    ///
    /// # Errors
    ///
    /// As the backend's constructor.
    ///
    /// # Cancel safety
    ///
    /// As the backend's constructor.
    pub async fn connect(&self, seat: &Seat) -> Result<Locks, Failure> {
        Ok(Locks::with_options((self.connect)(seat).await?, Options::new()))
    }

    /// What the strategy promises.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Strategy::connect).
    ///
    /// # Cancel safety
    ///
    /// As for [`connect`](Strategy::connect).
    pub async fn guarantees(&self, seat: &Seat) -> Result<Guarantees, Failure> {
        Ok((self.connect)(seat).await?.guarantees())
    }
}

impl fmt::Debug for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Strategy").field("name", &self.name).finish_non_exhaustive()
    }
}

/// There is no strategy of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    name: String,
    known: Vec<&'static str>,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no strategy `{}`; there are {}", self.name, self.known.join(", "))
    }
}

impl std::error::Error for Unknown {}

#[allow(clippy::unnecessary_wraps, reason = "it ends a chain of calls that fail")]
fn backend(backend: impl Backend) -> lock_core::Result<Arc<dyn Backend>> {
    Ok(Arc::new(backend))
}

fn not_started(strategy: &str, error: &io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, Effect::None, strategy, "connect", error.to_string())
}

fn pool(url: &str, strategy: &str) -> lock_core::Result<deadpool_redis::Pool> {
    raw::pool(url).map_err(|error| {
        Error::new(ErrorKind::InvalidInput, Effect::None, strategy, "connect", format!("no pool for this URL: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_those_there_are() {
        let names = ["memory".to_owned(), "redis-tokn".to_owned()];
        let error = Strategy::named(&names).unwrap_err().to_string();
        assert!(
            error.starts_with("there is no strategy `redis-tokn`; there are memory, naive-setnx-expire"),
            "{error}"
        );
    }

    #[test]
    fn strategies_come_in_the_order_in_which_they_are_named() {
        let names = ["naive-getset".to_owned(), "memory".to_owned()];
        let found: Vec<_> = Strategy::named(&names).unwrap().iter().map(Strategy::name).collect();
        assert_eq!(found, names);
        assert_eq!(Strategy::named(&[]).unwrap().len(), Strategy::all().len());
    }

    #[tokio::test]
    async fn a_strategy_is_called_as_its_backend_calls_itself() {
        let stores = Stores::start().unwrap();
        let seat = Seat::at(&stores, &Memory::new());
        for strategy in Strategy::all() {
            let locks = strategy.connect(&seat).await.unwrap();
            // A strategy with a variant has the variant's name behind the backend's.
            assert!(strategy.name().starts_with(locks.backend().name()), "{strategy:?}");
        }
    }
}
