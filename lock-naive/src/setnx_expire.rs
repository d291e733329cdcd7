use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use lock_core::{
    Backend, Claim, Effect, Exclusion, Expiry, Fencing, Grant, Guarantees, Inspection, LockKey, Moment, NodeFailure,
    OwnerCheck, Release, Renew, Renewal, Result, Stop, Undone, WakeUp,
};
use redis::aio::ConnectionManager;
use redis::cmd;

use crate::connection::{Connection, id};
use crate::error::lost;
use crate::ttl::round_up;
use crate::{Config, poll};

const NAME: &str = "naive-setnx-expire";

pub(crate) const GUARANTEES: Guarantees = Guarantees {
    exclusion: Exclusion::BestEffort,
    fencing: Fencing::None,
    fair: false,
    reentrant: false,
    idempotent_acquire: false,
    release_check: OwnerCheck::Racy,
    renew_check: OwnerCheck::None,
    frees_after_crash: false,
    trusts_client_clock: false,
    wake_up: WakeUp::Poll,
    node_failure: NodeFailure::LosesLocks,
    expiry: Expiry::Entry,
    min_ttl: Duration::from_secs(1),
    ttl_step: Duration::from_secs(1),
};

/// SETNX, and EXPIRE as a second command: what most articles on "a lock with Redis" begin with.
///
/// | step | commands |
/// | --- | --- |
/// | acquire | `SETNX key id`; if it answers 1, `EXPIRE key seconds` |
/// | renew | `EXPIRE key seconds`, whoever holds |
/// | release | `GET key`; if it is our id, `DEL key` |
/// | wait | try again every 100 ms |
///
/// # What breaks it
///
/// - **S01, S02**: between SETNX and EXPIRE the lock has no ttl. If the holder dies there, or the EXPIRE is lost, nobody
///   ever gets the lock again. `SET key id NX PX ms` (since Redis 2.6.12) is one command and has no such gap.
/// - **S19**: between GET and DEL the lease can end and another can take the lock; the DEL then frees that one's.
/// - **S29**: the renewal asks nobody whose lock it prolongs.
/// - **S04**: a retry after a lost reply finds its own entry and takes it for another's.
/// - **S05**: a SETNX that arrives after its caller has given up makes a lock without an end.
///
/// EXPIRE counts whole seconds. A ttl of half a second cut down to 0 makes it delete the key at once, so that everybody
/// acquires (S03). Here a ttl below 1 s is refused, a fraction is rounded **up**, and the grant says so.
///
/// # Source
///
/// The variant that blog articles call "SETNX + EXPIRE". The article that it was taken from compares SETNX's reply with null;
/// the reply is an integer and never null, so as printed it *always* acquires. This type tests for 1, which is what was
/// meant.
#[derive(Clone, Debug)]
pub struct SetnxExpire {
    redis: Connection,
}

impl SetnxExpire {
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
        let sent_at = Moment::now();
        if self.expire("renew", key, ttl).await? { Ok(Renewal::new(sent_at, ttl)) } else { Err(lost(key, NAME)) }
    }

    /// Gives the key a ttl of whole seconds; `false` if there is no key.
    async fn expire(&self, operation: &'static str, key: &LockKey, ttl: Duration) -> Result<bool> {
        self.redis.ask(operation, key, cmd("EXPIRE").arg(self.redis.wire_key(key)).arg(ttl.as_secs())).await
    }
}

#[async_trait]
impl Backend for SetnxExpire {
    fn name(&self) -> &str {
        NAME
    }

    fn guarantees(&self) -> Guarantees {
        GUARANTEES
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        let key = &claim.key;
        let ttl = round_up(claim.lease.ttl(), &GUARANTEES, NAME, "acquire").map_err(|e| e.with_key(key))?;
        let setnx = cmd("SETNX").arg(self.redis.wire_key(key)).arg(id(claim)).to_owned();
        if !self.redis.ask::<bool>("acquire", key, &setnx).await? {
            self.redis.refuse_foreign_type("acquire", key).await?;
            return Ok(None);
        }
        // From here to the reply of EXPIRE the lock has no end (S01).
        let sent_at = Moment::now();
        let expires = self.expire("acquire", key, ttl).await.map_err(|error| error.with_effect(Effect::Unknown))?;
        // Without the key there is nothing to hold: somebody has forced it away in between.
        Ok(expires.then(|| Grant::new(claim.clone(), sent_at, ttl)))
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        poll::acquire(self, claim, stop).await
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        join_all(batch.iter().map(|renew| self.renew_one(renew))).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        self.redis.compare_then_delete("release", &grant.claim).await
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
