//! The strategies under test, and how each comes to its store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lock_core::{Backend, Effect, Error, ErrorKind, Guarantees, Locks, Options};
use lock_etcd::Etcd;
use lock_memory::Memory;
use lock_naive::{BlindDelete, GetSet, SetnxExpire};
use lock_redis::{Config, Connection, Reentrant, ReentrantOptions, Token, TokenOptions, Unlock};
use lock_redlock::{Redlock, RedlockOptions};
use lock_zookeeper::ZooKeeper;

use crate::mutant;
use crate::raw::{self, FloorKind};
use crate::{Failure, Store, Stores};

/// A way of locking that is compared with the others.
///
/// A new strategy is one more entry in [`Strategy::all`].
#[derive(Clone, Copy)]
pub struct Strategy {
    name: &'static str,
    peer: &'static str,
    summary: &'static str,
    kind: Kind,
    connect: Connect,
}

/// Which strategy of the fault catalogue it is: each fault says for each kind what it does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(clippy::exhaustive_enums, reason = "every scenario must decide about a new kind")]
pub enum Kind {
    /// A table in the process.
    Memory,
    /// SETNX, then EXPIRE.
    SetnxExpire,
    /// SETNX of an expiry stamp, GETSET of a stale one.
    GetSet,
    /// SET NX PX, released by a blind DEL.
    BlindDelete,
    /// SET NX PX with a token, released by a script.
    Token,
    /// The same, released by WATCH and MULTI.
    TokenWatch,
    /// Redisson's hash of owners and counts.
    Reentrant,
    /// A majority of independent Redis servers.
    Redlock,
    /// The same with a second round that mints fencing tokens.
    RedlockFenced,
    /// A key under a lease of etcd.
    Etcd,
    /// An ephemeral sequential node of ZooKeeper.
    ZooKeeper,
}

impl Kind {
    /// All of them, from the simplest to the strongest.
    pub const ALL: [Self; 11] = [
        Self::Memory,
        Self::SetnxExpire,
        Self::GetSet,
        Self::BlindDelete,
        Self::Token,
        Self::TokenWatch,
        Self::Reentrant,
        Self::Redlock,
        Self::RedlockFenced,
        Self::Etcd,
        Self::ZooKeeper,
    ];

    /// Where it keeps its locks.
    #[must_use]
    pub const fn store(self) -> Store {
        match self {
            Self::Memory => Store::Process,
            Self::SetnxExpire | Self::GetSet | Self::BlindDelete | Self::Token | Self::TokenWatch | Self::Reentrant => {
                Store::Redis
            }
            Self::Redlock | Self::RedlockFenced => Store::Nodes,
            Self::Etcd => Store::Etcd,
            Self::ZooKeeper => Store::ZooKeeper,
        }
    }
}

/// Makes a backend for a client that sits there.
pub type Connect = for<'a> fn(&'a Seat) -> BoxFuture<'a, lock_core::Result<Arc<dyn Backend>>>;

/// Where a client sits: how it comes to its store.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The addresses of the store's servers, or of proxies in front of them.
    pub urls: Vec<String>,
    /// The table of the strategies that keep their locks in the process: all clients of one cell share it.
    pub memory: Memory,
    /// How long one request may take.
    pub request_limit: Duration,
    /// After what silence ZooKeeper ends the client's session; none for the backend's own choice.
    pub session: Option<Duration>,
    /// How many replicas must have a lock before it counts, for a strategy that can ask for that; none if nobody asks.
    pub replicas: Option<u32>,
}

/// How long replicas may take to have a lock, where it counts only then.
const REPLICAS_LIMIT: Duration = Duration::from_millis(500);

impl Seat {
    fn url(&self) -> &str {
        self.urls.first().map_or("", String::as_str)
    }

    fn naive(&self) -> lock_naive::Config {
        lock_naive::Config::new().with_request_limit(self.request_limit)
    }

    /// With the longest limit per node that there is: a scenario's leases are short, and the machine may be busy.
    async fn redlock(&self) -> lock_core::Result<Redlock> {
        let options = RedlockOptions::new().with_node_limit(Duration::from_millis(500));
        Redlock::open(&self.urls, Config::new().with_request_limit(self.request_limit), options).await
    }

    pub(crate) async fn redis(&self) -> lock_core::Result<Connection> {
        Connection::open(self.url(), Config::new().with_request_limit(self.request_limit)).await
    }

    fn token(&self) -> TokenOptions {
        let options = TokenOptions::new();
        match self.replicas {
            Some(count) => options.with_min_replicas(count, REPLICAS_LIMIT),
            None => options,
        }
    }

    fn reentrant(&self) -> ReentrantOptions {
        let options = ReentrantOptions::new();
        match self.replicas {
            Some(count) => options.with_min_replicas(count, REPLICAS_LIMIT),
            None => options,
        }
    }

    fn etcd(&self) -> lock_core::Result<Etcd> {
        let config = lock_etcd::Config::new().with_request_limit(self.request_limit);
        Etcd::connect_with(self.urls.clone(), etcd_client::ConnectOptions::new(), config)
    }

    async fn zookeeper(&self) -> lock_core::Result<ZooKeeper> {
        let hosts = self.urls.join(",");
        let Some(session) = self.session else { return ZooKeeper::connect(&hosts).await };
        let connector =
            zookeeper_client::Client::connector().with_session_timeout(session).with_connection_timeout(session / 5);
        let config = lock_zookeeper::Config::new().with_request_limit(self.request_limit);
        ZooKeeper::from_connector(connector, hosts, config).await
    }
}

impl Strategy {
    /// A strategy of this name.
    #[must_use]
    pub const fn new(
        name: &'static str,
        peer: &'static str,
        summary: &'static str,
        kind: Kind,
        connect: Connect,
    ) -> Self {
        Self { name, peer, summary, kind, connect }
    }

    /// Every strategy, from the simplest to the strongest.
    #[must_use]
    pub fn all() -> Vec<Self> {
        vec![
            Self::new("memory", "hasp-Memory", "a table in the process", Kind::Memory, |seat| {
                let memory: Arc<dyn Backend> = Arc::new(seat.memory.clone());
                async move { Ok(memory) }.boxed()
            }),
            Self::new(
                "naive-setnx-expire",
                "hasp-SetnxExpire",
                "SETNX, then EXPIRE; GET, compare, DEL",
                Kind::SetnxExpire,
                |seat| async { backend(SetnxExpire::connect(seat.url()).await?.with_config(seat.naive())) }.boxed(),
            ),
            Self::new(
                "naive-getset",
                "hasp-GetSet",
                "SETNX of an expiry stamp, GETSET of a stale one; GET, compare, DEL",
                Kind::GetSet,
                |seat| async { backend(GetSet::connect(seat.url()).await?.with_config(seat.naive())) }.boxed(),
            ),
            Self::new(
                "naive-blind-delete",
                "hasp-BlindDelete",
                "SET NX PX; DEL, whoever holds",
                Kind::BlindDelete,
                |seat| async { backend(BlindDelete::connect(seat.url()).await?.with_config(seat.naive())) }.boxed(),
            ),
            Self::new(
                "redis-token",
                "hasp-Token",
                "script: SET NX PX and a fencing token; script: compare and delete",
                Kind::Token,
                |seat| async { backend(Token::new(seat.redis().await?, seat.token()).await?) }.boxed(),
            ),
            Self::new(
                "redis-token-watch",
                "hasp-Token-watch",
                "as redis-token; WATCH, GET, compare, MULTI, DEL, EXEC on a pinned connection",
                Kind::TokenWatch,
                |seat| {
                    async {
                        let connection = seat.redis().await?.with_pool(pool(seat.url(), "redis-token-watch")?);
                        backend(Token::new(connection, seat.token().with_unlock(Unlock::Watch)).await?)
                    }
                    .boxed()
                },
            ),
            Self::new(
                "redis-reentrant",
                "hasp-Reentrant",
                "Redisson's hash of owners and counts, by scripts; a fencing token",
                Kind::Reentrant,
                |seat| async { backend(Reentrant::with_options(seat.redis().await?, seat.reentrant()).await?) }.boxed(),
            ),
            Self::new(
                "redlock",
                "hasp-Redlock",
                "as redis-token on five independent Redis servers, a majority decides",
                Kind::Redlock,
                |seat| async { backend(seat.redlock().await?) }.boxed(),
            ),
            Self::new(
                "redlock-fenced",
                "hasp-Redlock-fenced",
                "as redlock; a second round mints a fencing token",
                Kind::RedlockFenced,
                |seat| async { backend(seat.redlock().await?.fenced()) }.boxed(),
            ),
            Self::new("etcd", "hasp-Etcd", "a key under a lease, in order of create revision", Kind::Etcd, |seat| {
                async { backend(seat.etcd()?) }.boxed()
            }),
            Self::new(
                "zookeeper",
                "hasp-ZooKeeper",
                "an ephemeral sequential node, in order of creation",
                Kind::ZooKeeper,
                |seat| async { backend(seat.zookeeper().await?) }.boxed(),
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
            found.ok_or_else(|| Unknown {
                what: "strategy",
                name: name.clone(),
                known: all.iter().map(|known| known.name).collect(),
            })
        };
        names.iter().map(find).collect()
    }

    /// Its name, as its backend has it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Which strategy of the fault catalogue it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
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
        match self.kind.store() {
            Store::Redis => Some(FloorKind::SetNx),
            Store::Process | Store::Nodes | Store::Etcd | Store::ZooKeeper => None,
        }
    }

    /// A seat at these stores, without proxies; the clients of one table share `memory`.
    ///
    /// # Errors
    ///
    /// If the strategy's servers cannot be started.
    pub fn seat(&self, stores: &Stores, memory: &Memory) -> Result<Seat, Failure> {
        let urls = stores.urls(self.kind.store())?;
        Ok(Seat { urls, memory: memory.clone(), request_limit: Duration::from_secs(1), session: None, replicas: None })
    }

    /// The strategy or the mutant of this name.
    ///
    /// # Errors
    ///
    /// As for [`named`](Strategy::named).
    pub(crate) fn known(name: &str) -> Result<Self, Unknown> {
        let mutant = mutant::all().map(|mutant| mutant.strategy).find(|strategy| strategy.name == name);
        mutant.map_or_else(|| Ok(Self::named(&[name.to_owned()])?[0]), Ok)
    }

    /// The backend of a new client, with connections of its own.
    pub(crate) async fn backend(&self, seat: &Seat) -> lock_core::Result<Arc<dyn Backend>> {
        (self.connect)(seat).await
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

/// There is no strategy, or no scenario, of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    what: &'static str,
    name: String,
    known: Vec<&'static str>,
}

impl Unknown {
    pub(crate) fn scenario(name: &str) -> Self {
        let known = crate::scenario::all().map(|scenario| scenario.id).collect();
        Self { what: "scenario", name: name.to_owned(), known }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no {} `{}`; there are {}", self.what, self.name, self.known.join(", "))
    }
}

impl std::error::Error for Unknown {}

#[allow(clippy::unnecessary_wraps, reason = "it ends a chain of calls that fail")]
fn backend(backend: impl Backend) -> lock_core::Result<Arc<dyn Backend>> {
    Ok(Arc::new(backend))
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
        for strategy in Strategy::all() {
            let seat = strategy.seat(&stores, &Memory::new()).unwrap();
            let locks = strategy.connect(&seat).await.unwrap();
            // A strategy with a variant has the variant's name behind the backend's.
            assert!(strategy.name().starts_with(locks.backend().name()), "{strategy:?}");
        }
    }
}
