//! One client per endpoint, rotated by us, and a limit on every call.
//!
//! A client over several endpoints sends a share of its requests to one that is down or silent. Here all go to one endpoint
//! until it fails; a request that was certainly not applied goes to the next one within the same call.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{
    Client, ConnectOptions, Error as ClientError, GetOptions, GetResponse, KvClient, LeaseClient, LeaseGrantOptions,
    Txn, TxnResponse, WatchClient, WatchFilterType, WatchOptions, WatchStream,
};
use lock_core::Moment;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::error::Failure;

pub(crate) struct Endpoints {
    slots: Vec<Slot>,
    current: AtomicUsize,
    limit: Duration,
}

enum Slot {
    /// Ours: made on first use, and again when its runtime has ended.
    Own(Box<Own>),
    /// The user's.
    Given(Arc<Clients>),
}

struct Own {
    url: String,
    options: ConnectOptions,
    connected: Mutex<Option<Connected>>,
}

struct Clients {
    kv: KvClient,
    lease: LeaseClient,
    watch: WatchClient,
}

impl Endpoints {
    pub(crate) fn open(urls: Vec<String>, options: &ConnectOptions, limit: Duration) -> Self {
        let slot = |url| Slot::Own(Box::new(Own { url, options: options.clone(), connected: Mutex::default() }));
        Self { slots: urls.into_iter().map(slot).collect(), current: AtomicUsize::new(0), limit }
    }

    pub(crate) fn given(client: &Client, limit: Duration) -> Self {
        let slot = Slot::Given(Arc::new(Clients::of(client)));
        Self { slots: vec![slot], current: AtomicUsize::new(0), limit }
    }

    /// The longest that a call may take.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) async fn txn(&self, txn: Txn) -> Result<TxnResponse, Failure> {
        self.call(|clients| {
            let (mut kv, txn) = (clients.kv.clone(), txn.clone());
            async move { kv.txn(txn).await }
        })
        .await
    }

    pub(crate) async fn get(&self, key: &[u8], options: GetOptions) -> Result<GetResponse, Failure> {
        self.call(|clients| {
            let (mut kv, key, options) = (clients.kv.clone(), key.to_owned(), options.clone());
            async move { kv.get(key, Some(options)).await }
        })
        .await
    }

    /// Makes a lease of this id; answers the ttl that the server gave, in seconds.
    pub(crate) async fn grant(&self, id: i64, seconds: i64) -> Result<i64, Failure> {
        let answer = self.call(|clients| {
            let mut lease = clients.lease.clone();
            async move { lease.grant(seconds, Some(LeaseGrantOptions::new().with_id(id))).await }
        });
        Ok(answer.await?.ttl())
    }

    /// Restarts the ttl of a lease: one send, and the reply that belongs to it.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<(), Failure> {
        self.call(|clients| {
            let mut lease = clients.lease.clone();
            async move { lease.keep_alive(id).await.map(drop) }
        })
        .await
    }

    pub(crate) async fn revoke(&self, id: i64) -> Result<(), Failure> {
        self.call(|clients| {
            let mut lease = clients.lease.clone();
            async move { lease.revoke(id).await.map(drop) }
        })
        .await
    }

    /// The remaining and the granted ttl of a lease, in seconds; the first is below zero if there is no such lease.
    pub(crate) async fn time_to_live(&self, id: i64) -> Result<(i64, i64), Failure> {
        let answer = self.call(|clients| {
            let mut lease = clients.lease.clone();
            async move { lease.time_to_live(id, None).await }
        });
        let answer = answer.await?;
        Ok((answer.ttl(), answer.granted_ttl()))
    }

    /// Watches for deletions from now on: of one key, or of all that begin with it. From a revision that is past when the
    /// request arrives, the server would take it for a late one, and serve it in a pass every 100 ms.
    pub(crate) async fn watch_deletions(&self, key: &[u8], prefix: bool) -> Result<(WatchStream, usize), Failure> {
        let options = WatchOptions::new().with_filters([WatchFilterType::NoPut]);
        let options = if prefix { options.with_prefix() } else { options };
        let at = self.current.load(Ordering::Relaxed);
        let stream = self
            .call(|clients| {
                let (mut watch, key, options) = (clients.watch.clone(), key.to_owned(), options.clone());
                async move { watch.watch(key, Some(options)).await }
            })
            .await?;
        Ok((stream, at))
    }

    /// Goes on to the next endpoint, unless somebody has done so since `at` was in use.
    pub(crate) fn rotate(&self, at: usize) {
        let next = (at + 1) % self.slots.len();
        // If it has moved on already, that is as good.
        let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    async fn call<T, R, F>(&self, request: R) -> Result<T, Failure>
    where
        R: Fn(&Clients) -> F + Send + Sync,
        F: Future<Output = Result<T, ClientError>> + Send,
        T: Send,
    {
        let end = Moment::now().saturating_add(self.limit);
        let mut tried = 0;
        loop {
            let at = self.current.load(Ordering::Relaxed);
            let attempt = async { request(&*self.slots[at].clients().await?).await.map_err(Failure::from) };
            let failure = match tokio::time::timeout(end.remaining(), attempt).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => failure,
                Err(_elapsed) => Failure::Limit(self.limit),
            };
            // A lease that has ended has ended everywhere.
            if matches!(failure, Failure::LeaseGone) || !failure.is_outage() {
                return Err(failure);
            }
            self.rotate(at);
            tried += 1;
            if tried == self.slots.len() || !failure.had_no_effect() {
                return Err(failure);
            }
        }
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.slots.iter().map(Slot::url)).finish()
    }
}

impl Slot {
    async fn clients(&self) -> Result<Arc<Clients>, Failure> {
        let own = match self {
            Self::Own(own) => own,
            Self::Given(clients) => return Ok(Arc::clone(clients)),
        };
        let mut connected = own.connected.lock().await;
        if let Some(connected) = connected.as_ref().filter(|connected| connected.is_alive()) {
            return Ok(Arc::clone(&connected.clients));
        }
        let client = Client::connect([&own.url], Some(own.options.clone())).await.map_err(Failure::Connect)?;
        let clients = Arc::new(Clients::of(&client));
        *connected = Some(Connected { clients: Arc::clone(&clients), canary: tokio::spawn(std::future::pending()) });
        Ok(clients)
    }

    fn url(&self) -> &str {
        match self {
            Self::Own(own) => &own.url,
            Self::Given(_) => "a client of the program's",
        }
    }
}

impl Clients {
    fn of(client: &Client) -> Self {
        Self { kv: client.kv_client(), lease: client.lease_client(), watch: client.watch_client() }
    }
}

/// A client, whose connection is a task of the runtime that it was made on.
struct Connected {
    clients: Arc<Clients>,
    /// A task that ends only with its runtime, and so tells that the connection has ended too.
    canary: JoinHandle<()>,
}

impl Connected {
    fn is_alive(&self) -> bool {
        !self.canary.is_finished()
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.canary.abort();
    }
}
