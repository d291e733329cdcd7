//! What the tests stand on.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Backend, Claim, ErrorKind, Grant, Lease, LockKey, Locks, Options, Owner};
use lock_redis::{Config, Connection, Reentrant, Token, TokenOptions};
use lock_testkit::RedisServer;
use lock_testkit::fault::{Proxy, Request};

/// How long something may take before it counts as not happening.
pub(crate) const ROOM: Duration = Duration::from_secs(60);

/// A server, a proxy in front of it, and clients that come through the proxy.
pub(crate) struct Ground {
    pub(crate) server: RedisServer,
    pub(crate) proxy: Proxy,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let server = RedisServer::start().unwrap();
        let proxy = Proxy::start(server.addr()).unwrap();
        Self { server, proxy }
    }

    pub(crate) fn url_behind(&self) -> String {
        self.server.url_at(self.proxy.addr())
    }

    /// A client through the proxy whose requests may take up to `limit`.
    pub(crate) async fn token(&self, limit: Duration) -> Arc<dyn Backend> {
        Arc::new(Token::new(open(&self.url_behind(), limit).await, TokenOptions::new()).await.unwrap())
    }

    pub(crate) async fn reentrant(&self, limit: Duration) -> Arc<dyn Backend> {
        Arc::new(Reentrant::new(open(&self.url_behind(), limit).await).await.unwrap())
    }

    pub(crate) async fn both(&self, limit: Duration) -> [Arc<dyn Backend>; 2] {
        [self.token(limit).await, self.reentrant(limit).await]
    }

    /// A client that does not come through the proxy.
    pub(crate) async fn direct(&self) -> Arc<dyn Backend> {
        Arc::new(Token::new(open(&self.server.url(), ROOM).await, TokenOptions::new()).await.unwrap())
    }

    /// The number of holds in the hash of a reentrant lock.
    pub(crate) fn holds(&self, name: &str) -> Vec<u64> {
        self.server.command(&["HVALS", name]).unwrap()
    }

    pub(crate) fn exists(&self, key: &str) -> bool {
        self.server.command(&["EXISTS", key]).unwrap()
    }

    pub(crate) fn pttl(&self, key: &str) -> i64 {
        self.server.command(&["PTTL", key]).unwrap()
    }
}

pub(crate) async fn open(url: &str, limit: Duration) -> Connection {
    Connection::open(url, Config::new().with_request_limit(limit)).await.unwrap()
}

/// The key of a lock of either strategy.
pub(crate) fn key_of(backend: &dyn Backend, name: &str) -> String {
    if backend.name() == "redis-reentrant" { name.to_owned() } else { format!("hasp:{name}") }
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn renewed(backend: &Arc<dyn Backend>, ttl: Duration) -> Locks {
    Locks::with_options(Arc::clone(backend), Options::new().with_lease(Lease::renewed(ttl)))
}

pub(crate) fn fixed(backend: &Arc<dyn Backend>, ttl: Duration) -> Locks {
    Locks::with_options(Arc::clone(backend), Options::new().with_lease(Lease::fixed(ttl)))
}

pub(crate) fn claim(name: &str, ttl: Duration) -> Claim {
    Claim::new(LockKey::new(name).unwrap(), Owner::random(), Lease::fixed(ttl))
}

/// Takes a free lock. On a busy machine a request may exceed a short limit, so it is asked again as the driver would.
pub(crate) async fn take(backend: &dyn Backend, name: &str, ttl: Duration) -> Grant {
    let claim = claim(name, ttl);
    let taking = async {
        loop {
            match backend.try_acquire(&claim).await {
                Ok(grant) => return grant.expect("the lock is free"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
    };
    soon(taking).await
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(ROOM, what, condition).await;
}

pub(crate) async fn until_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let looking = async {
        while !condition() {
            tokio::time::sleep(millis(3)).await;
        }
    };
    assert!(tokio::time::timeout(limit, looking).await.is_ok(), "not within {limit:?}: {what}");
}

/// Ends a wait that should have ended long before.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(ROOM, future).await.expect("it ends soon")
}

/// The requests that run this script.
pub(crate) fn script(source: &str) -> Request {
    Request::command("EVALSHA").with_argument(redis::Script::new(source).get_hash())
}

/// The requests that acquire, renew and release, of either strategy.
pub(crate) struct Requests {
    pub(crate) acquire: Request,
    pub(crate) renew: Request,
    pub(crate) release: Request,
}

impl Requests {
    pub(crate) fn of(backend: &dyn Backend) -> Self {
        if backend.name() == "redis-reentrant" {
            Self {
                acquire: script(include_str!("../../src/reentrant/acquire.lua")),
                renew: script(include_str!("../../src/reentrant/renew.lua")),
                release: script(include_str!("../../src/reentrant/release.lua")),
            }
        } else {
            Self {
                acquire: script(include_str!("../../src/token/acquire.lua")),
                renew: script(include_str!("../../src/token/renew.lua")),
                release: script(include_str!("../../src/token/release.lua")),
            }
        }
    }
}
