use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use lock_core::{
    Backend, Claim, Exclusion, Expiry, Fencing, Grant, Guarantees, Inspection, LockKey, Moment, NodeFailure,
    OwnerCheck, Release, Renew, Renewal, Result, Stop, Undone, WakeUp,
};
use redis::aio::ConnectionManager;
use redis::cmd;

use crate::connection::{Connection, id};
use crate::error::lost;
use crate::ttl::round_up;
use crate::{Config, poll};

const NAME: &str = "naive-blind-delete";

pub(crate) const GUARANTEES: Guarantees = Guarantees {
    exclusion: Exclusion::BestEffort,
    fencing: Fencing::None,
    fair: false,
    reentrant: false,
    idempotent_acquire: false,
    release_check: OwnerCheck::None,
    renew_check: OwnerCheck::None,
    frees_after_crash: true,
    trusts_client_clock: false,
    wake_up: WakeUp::Poll,
    node_failure: NodeFailure::LosesLocks,
    expiry: Expiry::Entry,
    min_ttl: Duration::from_millis(100),
    ttl_step: Duration::from_millis(1),
};

/// SET NX PX, and a DEL that asks nobody: the acquire of today with the release of yesterday.
///
/// | step | commands |
/// | --- | --- |
/// | acquire | `SET key id NX PX ms` |
/// | renew | `PEXPIRE key ms`, whoever holds |
/// | release | `DEL key`, whoever holds |
/// | wait | try again every 100 ms |
///
/// # What breaks it
///
/// - **S18**: a holder that is late by more than its lease deletes the lock of the one who took it meanwhile, and is told
///   that it released its own (S24). A third can then acquire beside the second.
/// - **S29**: the renewal asks nobody whose lock it prolongs.
/// - **S04**: a retry after a lost reply finds its own entry and takes it for another's.
///
/// The cure is to delete only one's own value, in one step of the server: the compare-and-delete script of
/// `lock_redis::Token`.
///
/// # Source
///
/// The "Patterns" of the Redis documentation's page for SET: it shows this acquire with a DEL as its release, and then
/// advises against that release, for the reason above. What articles copy is often the first half only, with a constant as
/// the value. Here the value is the claim's id: the release does not look at it, but an undo must not be blind.
#[derive(Clone, Debug)]
pub struct BlindDelete {
    redis: Connection,
}

impl BlindDelete {
    /// Connects to the Redis at `url`, such as `redis://user:password@host:6379/0`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the URL is none; `Rejected` if the server refuses the user or the password; `Unavailable` if it
    /// does not answer within a second.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped connect leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Self> {
        Ok(Self { redis: Connection::open(url, NAME).await? })
    }

    /// On a connection that the caller already has. Each request has this crate's own limit beside the manager's.
    #[must_use]
    pub fn from_manager(manager: ConnectionManager) -> Self {
        Self { redis: Connection::from_manager(manager, NAME) }
    }

    /// The same with other settings.
    #[must_use]
    pub fn with_config(self, config: Config) -> Self {
        Self { redis: self.redis.with_config(config) }
    }

    async fn renew_one(&self, renew: &Renew<'_>) -> Result<Renewal> {
        let key = &renew.grant.claim.key;
        let ttl = round_up(renew.ttl, &GUARANTEES, NAME, "renew").map_err(|error| error.with_key(key))?;
        let pexpire = cmd("PEXPIRE").arg(self.redis.wire_key(key)).arg(millis(ttl)).to_owned();
        let sent_at = Moment::now();
        if self.redis.ask("renew", key, &pexpire).await? {
            Ok(Renewal::new(sent_at, ttl))
        } else {
            Err(lost(key, NAME))
        }
    }
}

#[async_trait]
impl Backend for BlindDelete {
    fn name(&self) -> &str {
        NAME
    }

    fn guarantees(&self) -> Guarantees {
        GUARANTEES
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        let key = &claim.key;
        let ttl = round_up(claim.lease.ttl(), &GUARANTEES, NAME, "acquire").map_err(|e| e.with_key(key))?;
        let set =
            cmd("SET").arg(self.redis.wire_key(key)).arg(id(claim)).arg("NX").arg("PX").arg(millis(ttl)).to_owned();
        let sent_at = Moment::now();
        if self.redis.ask("acquire", key, &set).await? {
            return Ok(Some(Grant::new(claim.clone(), sent_at, ttl)));
        }
        self.redis.refuse_foreign_type("acquire", key).await?;
        Ok(None)
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        poll::acquire(self, claim, stop).await
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        join_all(batch.iter().map(|renew| self.renew_one(renew))).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        self.redis.delete("release", &grant.claim.key).await
    }

    async fn abandon(&self, claim: &Claim) -> Result<Undone> {
        let _ = self.redis.compare_then_delete("abandon", claim).await?;
        Ok(Undone::MayStillLand)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection> {
        self.redis.inspect(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockKey>> {
        self.redis.list(prefix).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Release> {
        self.redis.delete("force_release", key).await
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// As PX and PEXPIRE count; `round_up` has made it whole.
fn millis(ttl: Duration) -> u128 {
    ttl.as_millis()
}
