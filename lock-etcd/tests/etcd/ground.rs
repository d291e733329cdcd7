//! What the tests stand on: clusters, claims, and looks at what is in the store.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, GetOptions};
use lock_core::{Backend, Claim, Grant, Lease, LockKey, Moment, Owner, Result, Stop};
use lock_etcd::Etcd;
use lock_testkit::EtcdCluster;
use tokio::task::JoinHandle;

/// How long anything may take on a busy machine.
pub(crate) const ROOM: Duration = Duration::from_secs(60);

pub(crate) fn one() -> EtcdCluster {
    EtcdCluster::start().unwrap()
}

pub(crate) fn three() -> EtcdCluster {
    EtcdCluster::builder().members(3).start().unwrap()
}

pub(crate) fn etcd(cluster: &EtcdCluster) -> Arc<Etcd> {
    Arc::new(Etcd::connect(cluster.urls()).unwrap())
}

/// A client of the tests' own.
pub(crate) async fn admin(cluster: &EtcdCluster) -> Client {
    Client::connect(cluster.urls(), None).await.unwrap()
}

pub(crate) fn renewed(name: &str, seconds: u64) -> Claim {
    claim(name, Lease::renewed(Duration::from_secs(seconds)))
}

pub(crate) fn fixed(name: &str, seconds: u64) -> Claim {
    claim(name, Lease::fixed(Duration::from_secs(seconds)))
}

fn claim(name: &str, lease: Lease) -> Claim {
    Claim::new(LockKey::new(name).unwrap(), Owner::random(), lease)
}

pub(crate) async fn take(etcd: &Etcd, claim: &Claim) -> Grant {
    etcd.try_acquire(claim).await.unwrap().expect("a free lock is granted")
}

/// A wait that has been told to wait.
pub(crate) struct Waiter {
    pub(crate) stop: Stop,
    pub(crate) wait: JoinHandle<Result<Option<Grant>>>,
}

impl Waiter {
    pub(crate) async fn start(etcd: &Arc<Etcd>, claim: Claim) -> Self {
        let (etcd, stop) = (Arc::clone(etcd), Stop::new());
        let wait = tokio::spawn({
            let stop = stop.clone();
            async move { etcd.acquire(&claim, &stop).await }
        });
        eventually("it waits", async || stop.is_waiting()).await;
        Self { stop, wait }
    }

    pub(crate) async fn ended(self) -> Result<Option<Grant>> {
        tokio::time::timeout(ROOM, self.wait).await.expect("the wait ends").unwrap()
    }

    pub(crate) async fn granted(self) -> Grant {
        self.ended().await.unwrap().expect("nobody has stopped it")
    }
}

/// The keys that begin with `prefix`, oldest first, and the lease of each.
pub(crate) async fn keys(admin: &Client, prefix: &str) -> Vec<(String, i64)> {
    let options = GetOptions::new().with_prefix();
    let mut kvs = admin.kv_client().get(prefix, Some(options)).await.unwrap().take_kvs();
    kvs.sort_by_key(etcd_client::KeyValue::create_revision);
    kvs.iter().map(|kv| (kv.key_str().unwrap().to_owned(), kv.lease())).collect()
}

pub(crate) async fn revoke(admin: &Client, lease: i64) {
    admin.lease_client().revoke(lease).await.unwrap();
}

/// Looks again every few milliseconds.
pub(crate) async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let limit = Moment::now().saturating_add(ROOM);
    while !so().await {
        assert!(!limit.remaining().is_zero(), "not within {ROOM:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
