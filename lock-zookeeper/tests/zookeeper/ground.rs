//! What the tests stand on.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Backend, Claim, Grant, Lease, LockKey, Locks, Moment, Options, Owner, Release};
use lock_testkit::ZooKeeperEnsemble;
use lock_testkit::fault::Proxy;
use lock_zookeeper::{Config, ZooKeeper};
use zookeeper_client::{Client, Connector};

/// How long something may take before it counts as not happening.
pub(crate) const ROOM: Duration = Duration::from_secs(60);

/// The longest session that a tick of 200 ms allows.
pub(crate) const SESSION: Duration = Duration::from_secs(4);

/// A server, a proxy in front of it, and clients that come through the proxy.
pub(crate) struct Ground {
    pub(crate) ensemble: ZooKeeperEnsemble,
    pub(crate) proxy: Proxy,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let ensemble = ZooKeeperEnsemble::start(1).expect("ZooKeeper starts");
        let proxy = Proxy::start_opaque(ensemble.addr(0)).expect("a proxy starts");
        Self { ensemble, proxy }
    }

    /// A client through the proxy.
    pub(crate) async fn proxied(&self) -> Arc<dyn Backend> {
        open(&self.proxy.addr().to_string(), Config::new()).await
    }

    /// A client that does not come through the proxy.
    pub(crate) async fn direct(&self) -> Arc<dyn Backend> {
        open(&self.ensemble.hosts(), Config::new()).await
    }

    /// The bare client library, to look at nodes.
    pub(crate) async fn look(&self) -> Client {
        connector().connect(&self.ensemble.hosts()).await.expect("the server runs")
    }
}

pub(crate) fn connector() -> Connector {
    Client::connector().with_session_timeout(SESSION)
}

pub(crate) async fn open(hosts: &str, config: Config) -> Arc<dyn Backend> {
    Arc::new(ZooKeeper::from_connector(connector(), hosts, config).await.expect("the servers run"))
}

pub(crate) fn locks(backend: &Arc<dyn Backend>) -> Locks {
    Locks::with_options(Arc::clone(backend), Options::new())
}

pub(crate) fn claim(name: &str) -> Claim {
    Claim::new(LockKey::new(name).expect("a key"), Owner::random(), Lease::default())
}

pub(crate) async fn take(backend: &Arc<dyn Backend>, name: &str) -> Grant {
    backend.try_acquire(&claim(name)).await.expect("the servers run").expect("a free lock is granted")
}

/// Takes the lock and gives it back, so that its path exists and a create is the first that is sent next.
pub(crate) async fn make_path(backend: &Arc<dyn Backend>, name: &str) {
    let grant = take(backend, name).await;
    assert_eq!(backend.release(&grant).await.expect("the servers run"), Release::Released);
}

/// Takes the lock and gives it back until the session knows the path for a quiet one, so that a create is all that the next
/// acquisition sends.
pub(crate) async fn make_quiet(backend: &Arc<dyn Backend>, name: &str) {
    for _ in 0..4 {
        make_path(backend, name).await;
    }
}

/// The children of a lock's path; none if it has no path.
pub(crate) async fn nodes(client: &Client, path: &str) -> Vec<String> {
    match client.list_children(path).await {
        Err(zookeeper_client::Error::NoNode) => Vec::new(),
        children => children.expect("the server runs"),
    }
}

pub(crate) async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let limit = Moment::now().saturating_add(ROOM);
    while !so().await {
        assert!(Moment::now() < limit, "not within {ROOM:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// One of the counters of an ensemble's first server.
pub(crate) fn metric(ensemble: &ZooKeeperEnsemble, name: &str) -> u64 {
    let metrics = ensemble.command(0, "mntr").expect("the server runs");
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    value.unwrap_or_else(|| panic!("the server does not tell {name}")).trim().parse().expect("a number")
}
