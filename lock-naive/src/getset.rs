use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use lock_core::{
    Backend, Claim, Exclusion, Expiry, Fencing, Grant, Guarantees, Inspection, LockKey, Moment, NodeFailure,
    OwnerCheck, Release, Renew, Renewal, Result, Stop, Undone, WakeUp,
};
use redis::aio::ConnectionManager;
use redis::cmd;

use crate::connection::{Connection, id};
use crate::error::{foreign, lost};
use crate::ttl::round_up;
use crate::{Config, poll};

const NAME: &str = "naive-getset";

pub(crate) const GUARANTEES: Guarantees = Guarantees {
    exclusion: Exclusion::BestEffort,
    fencing: Fencing::None,
    fair: false,
    reentrant: false,
    idempotent_acquire: false,
    release_check: OwnerCheck::Racy,
    renew_check: OwnerCheck::None,
    frees_after_crash: true,
    trusts_client_clock: true,
    wake_up: WakeUp::Poll,
    node_failure: NodeFailure::LosesLocks,
    expiry: Expiry::Entry,
    min_ttl: Duration::from_millis(100),
    ttl_step: Duration::from_millis(1),
};

/// SETNX of an expiry stamp, and GETSET to take over a stale one: the lock of the time before `SET NX PX`.
///
/// The key never expires in Redis. Its value is the time at which the lock ends, by the wall clock of the client that wrote
/// it, and every other client compares that with its own wall clock.
///
/// | step | commands |
/// | --- | --- |
/// | acquire | `SETNX key stamp`; if it answers 0, `GET key`; if that stamp has passed, `GETSET key stamp`, and it is ours only if GETSET answers the stamp that GET read |
/// | renew | `SET key stamp XX`, whoever holds |
/// | release | `GET key`; if it is our stamp, `DEL key` |
/// | wait | try again every 100 ms |
///
/// # What breaks it
///
/// - **S11**: a client whose clock is fast by more than the lease has left takes a lock that is held.
/// - **S12**: of those who find a stale stamp exactly one wins, but every loser's GETSET has put its own stamp there, and the
///   last one stands. The winner's release then does not find its own stamp and deletes nothing: the lock is stuck until
///   the loser's stamp has passed. A GETSET that comes just after the release, and answers nil, leaves one as well.
/// - **S19**: between GET and DEL the lease can end and another can take the lock; the DEL then frees that one's.
/// - **S29**: the renewal asks nobody whose lock it prolongs.
/// - **S04**: a retry after a lost reply finds its own entry and takes it for another's.
///
/// A holder that dies leaves a stamp, so the lock is free for the next at its time; the key itself stays in Redis.
///
/// # Source
///
/// The design pattern "Locking with SETNX" on the Redis documentation's page for SETNX, which now advises against it and
/// keeps it because old code refers to it. That page has the winner test whether the stamp that GETSET answers *has passed*;
/// the blog articles, and this type, test whether it *is the one that GET read*. Of the loser's stamp the page says that it
/// does no harm, which holds for a release that does not compare.
///
/// Two things are added. Behind the stamp stands the claim's id (`1767225600000:4f3a...`), so that two clients that write
/// within one millisecond differ and an undo knows its own entry. And the original has no renewal at all.
#[derive(Clone)]
pub struct GetSet {
    redis: Connection,
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

impl GetSet {
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
        Ok(Self::on(Connection::open(url, NAME).await?))
    }

    /// On a connection that the caller already has. Each request has this crate's own limit beside the manager's.
    #[must_use]
    pub fn from_manager(manager: ConnectionManager) -> Self {
        Self::on(Connection::from_manager(manager, NAME))
    }

    /// The same with other settings.
    #[must_use]
    pub fn with_config(self, config: Config) -> Self {
        Self { redis: self.redis.with_config(config), ..self }
    }

    /// The same by another wall clock, to see what a client with a wrong one does; [`SystemTime::now`] unless set.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Fn() -> SystemTime + Send + Sync>) -> Self {
        Self { clock, ..self }
    }

    fn on(redis: Connection) -> Self {
        Self { redis, clock: Arc::new(SystemTime::now) }
    }

    /// The time by this client's wall clock, in milliseconds since 1970.
    fn now(&self) -> u64 {
        let since = (self.clock)().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// A value that ends `ttl` from now.
    fn value(&self, claim: &Claim, ttl: Duration) -> String {
        let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        format!("{}:{}", self.now().saturating_add(ttl), id(claim))
    }

    /// How long the entry has still to live by this client's clock; `None` if its stamp has passed.
    fn remaining(&self, operation: &'static str, key: &LockKey, value: &[u8]) -> Result<Option<Duration>> {
        stamp(value)
            .map(|stamp| self.until(stamp))
            .ok_or_else(|| foreign(&self.redis.wire_key(key), "no expiry stamp", NAME, operation).with_key(key))
    }

    fn until(&self, stamp: u64) -> Option<Duration> {
        stamp.checked_sub(self.now()).filter(|left| *left > 0).map(Duration::from_millis)
    }

    async fn renew_one(&self, renew: &Renew<'_>) -> Result<Renewal> {
        let claim = &renew.grant.claim;
        let key = &claim.key;
        let ttl = round_up(renew.ttl, &GUARANTEES, NAME, "renew").map_err(|error| error.with_key(key))?;
        let sent_at = Moment::now();
        // The one bow to the contract: without XX a renewal would make a released lock again.
        let set = cmd("SET").arg(self.redis.wire_key(key)).arg(self.value(claim, ttl)).arg("XX").to_owned();
        if self.redis.ask("renew", key, &set).await? { Ok(Renewal::new(sent_at, ttl)) } else { Err(lost(key, NAME)) }
    }
}

impl fmt::Debug for GetSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetSet").field("redis", &self.redis).finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for GetSet {
    fn name(&self) -> &str {
        NAME
    }

    fn guarantees(&self) -> Guarantees {
        GUARANTEES
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        let key = &claim.key;
        let ttl = round_up(claim.lease.ttl(), &GUARANTEES, NAME, "acquire").map_err(|e| e.with_key(key))?;
        let wire_key = self.redis.wire_key(key);

        // `sent_at` is read before the wall clock, so that our deadline is never behind the stamp.
        let sent_at = Moment::now();
        let setnx = cmd("SETNX").arg(&wire_key).arg(self.value(claim, ttl)).to_owned();
        if self.redis.ask("acquire", key, &setnx).await? {
            return Ok(Some(Grant::new(claim.clone(), sent_at, ttl)));
        }

        // A lock that has been freed since is left for the next try.
        let Some(seen) = self.redis.value("acquire", key).await? else { return Ok(None) };
        if self.remaining("acquire", key, &seen)?.is_some() {
            return Ok(None);
        }

        // Whoever gets the stale stamp back has the lock; the others have overwritten the winner's (S12).
        let sent_at = Moment::now();
        let getset = cmd("GETSET").arg(&wire_key).arg(self.value(claim, ttl)).to_owned();
        let replaced: Option<Vec<u8>> = self.redis.ask("acquire", key, &getset).await?;
        Ok((replaced == Some(seen)).then(|| Grant::new(claim.clone(), sent_at, ttl)))
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        poll::acquire(self, claim, stop).await
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        join_all(batch.iter().map(|renew| self.renew_one(renew))).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        let key = &grant.claim.key;
        let Some(value) = self.redis.value("release", key).await? else { return Ok(Release::NotHeld) };
        if !value.ends_with(id(&grant.claim).as_bytes()) {
            return Ok(Release::NotHeld);
        }
        let held = self.remaining("release", key, &value)?.is_some();
        let deleted = self.redis.delete("release", key).await?;
        // After its stamp our own entry may still be there, but the lock was free for anybody.
        Ok(if held { deleted } else { Release::NotHeld })
    }

    async fn abandon(&self, claim: &Claim) -> Result<Undone> {
        let _ = self.redis.compare_then_delete("abandon", claim).await?;
        Ok(Undone::MayStillLand)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection> {
        let mut found = Inspection::default();
        if let Some(value) = self.redis.value("inspect", key).await? {
            found.remaining = self.remaining("inspect", key, &value)?;
            found.held = found.remaining.is_some();
            found.holder = found.held.then(|| String::from_utf8_lossy(&value).into_owned());
        }
        Ok(found)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockKey>> {
        let keys = self.redis.list(prefix).await?;
        // The keys of ended locks stay in Redis; only the stamp tells.
        let values = try_join_all(keys.iter().map(|key| self.redis.value("list", key))).await?;
        let held = |value: Option<Vec<u8>>| value.and_then(|value| self.until(stamp(&value)?)).is_some();
        Ok(keys.into_iter().zip(values).filter_map(|(key, value)| held(value).then_some(key)).collect())
    }

    async fn force_release(&self, key: &LockKey) -> Result<Release> {
        let getdel = cmd("GETDEL").arg(self.redis.wire_key(key)).to_owned();
        let deleted: Option<Vec<u8>> = self.redis.ask("force_release", key, &getdel).await?;
        let held = deleted.and_then(|value| self.until(stamp(&value)?)).is_some();
        Ok(if held { Release::Released } else { Release::NotHeld })
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// The time at which an entry ends, in milliseconds since 1970 by its writer's clock; `None` if it is no entry of ours.
fn stamp(value: &[u8]) -> Option<u64> {
    let (stamp, _id) = str::from_utf8(value).ok()?.split_once(':')?;
    stamp.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_a_number_with_an_id_behind_it() {
        for (value, reads) in [
            (&b"1767225600000:4f3a"[..], Some(1_767_225_600_000)),
            (b"1767225600000", None),
            (b"soon:4f3a", None),
            (b"-1:4f3a", None),
            (b"\xff:4f3a", None),
            (b"", None),
        ] {
            assert_eq!(stamp(value), reads, "{value:?}");
        }
    }
}
