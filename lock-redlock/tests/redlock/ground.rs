//! What the tests stand on: nodes behind proxies, claims, and looks at the nodes from outside.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Backend, Claim, Grant, Lease, LockKey, Locks, Moment, Options, Owner};
use lock_redis::Config;
use lock_redlock::{Redlock, RedlockOptions};
use lock_testkit::RedisNodes;
use lock_testkit::fault::{Proxy, Request};

/// How much longer than it should something may take before it counts as not happening.
pub(crate) const ROOM: Duration = Duration::from_secs(60);

/// The limit per node, where a test does not mean another: a node on a busy machine has time enough, and a round whose nodes
/// are silent ends soon.
pub(crate) const LIMIT: Duration = millis(2_000);

/// Calls go on behind a round that has ended, so this is more.
const REQUEST_LIMIT: Duration = millis(4_000);

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Nodes, and one client's way to each of them.
pub(crate) struct Ground {
    pub(crate) nodes: Arc<RedisNodes>,
    pub(crate) proxies: Vec<Proxy>,
}

impl Ground {
    pub(crate) fn new(count: usize) -> Self {
        Self::on(Arc::new(RedisNodes::start(count).unwrap()))
    }

    /// Another client's way to the same nodes.
    pub(crate) fn on(nodes: Arc<RedisNodes>) -> Self {
        let proxies = nodes.iter().map(|node| Proxy::start(node.addr()).unwrap()).collect();
        Self { nodes, proxies }
    }

    /// A client whose nodes may take `limit`, and whose scripts the nodes know.
    pub(crate) async fn redlock(&self, limit: Duration) -> Redlock {
        let urls: Vec<_> =
            self.nodes.iter().zip(&self.proxies).map(|(node, proxy)| node.url_at(proxy.addr())).collect();
        let redlock =
            Redlock::open(&urls, Config::new().with_request_limit(REQUEST_LIMIT), options(limit)).await.unwrap();
        self.all_vote(&redlock).await;
        redlock
    }

    pub(crate) async fn fenced(&self, limit: Duration) -> Redlock {
        let redlock = self.redlock(limit).await.fenced();
        self.all_vote(&redlock).await;
        redlock
    }

    /// Waits until every node takes part, also one that has been away, and knows the scripts.
    pub(crate) async fn all_vote(&self, redlock: &Redlock) {
        let limit = Moment::now().saturating_add(ROOM);
        loop {
            assert!(Moment::now() < limit, "not all nodes vote");
            // A connection that was lost with its node may cost a round.
            let Ok(Some(grant)) = redlock.try_acquire(&claim("vote", millis(5_000))).await else { continue };
            soon(redlock.close()).await.unwrap();
            let votes = self.holding("vote");
            let released = redlock.release(&grant).await;
            soon(redlock.close()).await.unwrap();
            if votes == self.nodes.len() && released.is_ok() && self.holding("vote") == 0 {
                return;
            }
            (0..self.nodes.len()).for_each(|node| self.delete(node, "vote"));
        }
    }

    /// How many nodes hold the lock for anybody.
    pub(crate) fn holding(&self, name: &str) -> usize {
        (0..self.nodes.len()).filter(|&node| self.value(node, name).is_some()).count()
    }

    /// What a node holds for the lock.
    pub(crate) fn value(&self, node: usize, name: &str) -> Option<String> {
        self.nodes[node].command(&["GET", &format!("hasp:{name}")]).unwrap()
    }

    pub(crate) fn delete(&self, node: usize, name: &str) {
        self.nodes[node].command::<()>(&["DEL", &format!("hasp:{name}")]).unwrap();
    }
}

pub(crate) fn options(limit: Duration) -> RedlockOptions {
    RedlockOptions::new().with_node_limit(limit)
}

pub(crate) fn claim(name: &str, ttl: Duration) -> Claim {
    Claim::new(LockKey::new(name).unwrap(), Owner::random(), Lease::fixed(ttl))
}

pub(crate) async fn take(redlock: &Redlock, name: &str, ttl: Duration) -> Grant {
    redlock.try_acquire(&claim(name, ttl)).await.unwrap().expect("a free lock is granted")
}

pub(crate) fn locks(redlock: Redlock, lease: Lease) -> Locks {
    Locks::with_options(Arc::new(redlock), Options::new().with_lease(lease))
}

/// The requests about one lock.
pub(crate) fn about(name: &str) -> Request {
    Request::any().with_argument(format!("hasp:{name}"))
}

/// Waits for it, and says how long it took.
pub(crate) async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let start = Moment::now();
    let output = soon(future).await;
    (output, Moment::now().saturating_duration_since(start))
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(ROOM, future).await.expect("it ends soon")
}

pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let limit = Moment::now().saturating_add(ROOM);
    while !so() {
        assert!(Moment::now() < limit, "not within {ROOM:?}: {what}");
        tokio::time::sleep(millis(2)).await;
    }
}
