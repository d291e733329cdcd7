//! etcd's own Lock service, and what a lease stands for in it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, GetOptions, LockOptions, SortOrder, SortTarget};
use futures_util::FutureExt;
use lock_core::{Backend, Claim, FencingToken, Grant, LockKey, Moment, Release, Renew, Renewal, Result, Stop, Undone};
use tokio::sync::OnceCell;

use super::Mutant;
use super::flawed::{Flaw, failed, flawed, lost, ours};
use crate::Strategy;
use crate::strategy::{Kind, Seat};

pub(super) const ALL: &[Mutant] = &[SERVER_LOCK, ONE_LEASE];

/// The Lock service of 3.4 waits until those before it are gone, and does not look whether its own key still stands
/// (`concurrency.Mutex` there; from 3.5 on it does).
const SERVER_LOCK: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-etcd-server-lock",
        "",
        "as etcd, but by the server's Lock service, under a lease for each claim",
        Kind::Etcd,
        |seat| server_lock(seat, false).boxed(),
    ),
    flaw: "a waiter whose lease ends while it waits is granted the lock beside the next one",
    caught_by: &["S57"],
};

/// The service's protocol file: a lock that its lease already holds is "treated as a single acquisition".
const ONE_LEASE: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-etcd-one-lease",
        "",
        "as mutant-etcd-server-lock, but all claims of a client share one lease, and so one key",
        Kind::Etcd,
        |seat| server_lock(seat, true).boxed(),
    ),
    flaw: "two claims of one client both hold the lock",
    caught_by: &["S58"],
};

async fn server_lock(seat: &Seat, shares: bool) -> Result<Arc<dyn Backend>> {
    let client = Client::connect(&seat.urls, None).await.map_err(|error| failed("connect", error))?;
    let shared = shares.then(OnceCell::new);
    flawed(ServerLock { ours: ours(Kind::Etcd, seat).await?, client, shared, request_limit: seat.request_limit })
}

struct ServerLock {
    ours: Arc<dyn Backend>,
    client: Client,
    /// The one lease, where there is one.
    shared: Option<OnceCell<i64>>,
    request_limit: Duration,
}

/// The state of a grant.
struct Place {
    lease: i64,
    key: Vec<u8>,
}

impl ServerLock {
    async fn lease(&self, claim: &Claim) -> Result<i64> {
        let seconds = i64::try_from(claim.lease.ttl().as_secs()).expect("a lease of the lab is short");
        let grant = async || {
            let lease = self.client.lease_client().grant(seconds, None).await;
            lease.map(|lease| lease.id()).map_err(|error| failed("acquire", error))
        };
        match &self.shared {
            Some(shared) => shared.get_or_try_init(grant).await.copied(),
            None => grant().await,
        }
    }

    /// The Lock service waits, so whether the lock is free is looked up before.
    async fn is_anothers(&self, claim: &Claim, lease: i64) -> Result<bool> {
        let queue = format!("{}/", queue(&claim.key));
        let first = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1);
        let first = self.client.kv_client().get(queue.as_bytes(), Some(first)).await;
        let first = first.map_err(|error| failed("acquire", error))?;
        Ok(first.kvs().first().is_some_and(|first| first.key() != format!("{queue}{lease:x}").as_bytes()))
    }

    /// Waits for the lock; none if it is stopped.
    async fn lock(&self, claim: &Claim, lease: i64, sent_at: Moment, stop: &Stop) -> Result<Option<Grant>> {
        let mut client = self.client.lock_client();
        let granted = tokio::select! {
            biased;
            // The server takes the key out of the queue when its client hangs up.
            () = stop.fired() => return Ok(None),
            granted = client.lock(queue(&claim.key), Some(LockOptions::new().with_lease(lease))) => granted,
        };
        let granted = granted.map_err(|error| failed("acquire", error))?;
        // Of one that has waited, 3.4 gives the revision of the wait: one more reason not to use the service.
        let revision = granted.header().map_or(0, etcd_client::ResponseHeader::revision);
        let place = Place { lease, key: granted.key().to_vec() };
        Ok(Some(
            Grant::new(claim.clone(), sent_at, claim.lease.ttl())
                .with_fencing_token(FencingToken::new(revision.unsigned_abs()))
                .with_state(Arc::new(place)),
        ))
    }

    async fn renew_one(&self, renew: &Renew<'_>) -> Result<Renewal> {
        let lease = place(renew.grant).lease;
        let sent_at = Moment::now();
        let kept = async {
            let (mut keeper, mut answers) = self.client.lease_client().keep_alive(lease).await?;
            keeper.keep_alive().await?;
            answers.message().await
        };
        let kept = kept.await.map_err(|error: etcd_client::Error| failed("renew", error))?;
        if kept.is_some_and(|kept| kept.ttl() > 0) { Ok(Renewal::new(sent_at, renew.ttl)) } else { Err(lost()) }
    }
}

fn place(grant: &Grant) -> &Place {
    let state = grant.state.as_ref().and_then(|state| state.downcast_ref());
    state.expect("the grant is one of this backend's")
}

/// The lock as `lock_etcd` names it.
fn queue(key: &LockKey) -> String {
    format!("hasp/{}", key.as_str().replace('%', "%25").replace('/', "%2F"))
}

#[async_trait]
impl Flaw for ServerLock {
    fn ours(&self) -> &dyn Backend {
        &*self.ours
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        let sent_at = Moment::now();
        let lease = self.lease(claim).await?;
        if self.is_anothers(claim, lease).await? {
            return Ok(None);
        }
        let never = Stop::new();
        let locking = self.lock(claim, lease, sent_at, &never);
        tokio::time::timeout(self.request_limit, locking).await.unwrap_or(Ok(None))
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        let sent_at = Moment::now();
        let lease = self.lease(claim).await?;
        stop.report_waiting();
        self.lock(claim, lease, sent_at, stop).await
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        futures_util::future::join_all(batch.iter().map(|renew| self.renew_one(renew))).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        let deleted = self.client.kv_client().delete(place(grant).key.clone(), None).await;
        let deleted = deleted.map_err(|error| failed("release", error))?.deleted();
        Ok(if deleted > 0 { Release::Released } else { Release::NotHeld })
    }

    /// What is left ends with its lease.
    async fn abandon(&self, _: &Claim) -> Result<Undone> {
        Ok(Undone::MayStillLand)
    }
}
