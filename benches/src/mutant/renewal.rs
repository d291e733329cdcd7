//! Keeping a lock.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use lock_core::{Backend, Claim, Grant, Moment, Renew, Renewal, Result, Stop};

use super::Mutant;
use super::flawed::{Flaw, flawed, ours};
use super::script::{REENTRANT, TOKEN};
use crate::Strategy;
use crate::strategy::{Kind, Seat};

pub(super) const ALL: &[Mutant] = &[BLIND, BELIEVING, REFUSED, OUTLIVING];

/// The line of our script by which a renewal asks whose the lock is.
const COMPARE: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end";

/// `PEXPIRE key ms` by a timer: what most articles that add a renewal give.
const BLIND: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-blind-renewal",
        "",
        "as redis-token, but a renewal asks only whether there is a lock",
        Kind::Token,
        |seat| {
            let changed = "if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end";
            TOKEN.with_renew(COMPARE, changed).backend(seat).boxed()
        },
    ),
    flaw: "a holder that has lost the lock keeps another's alive",
    caught_by: &["S29"],
};

/// etcd did so for leases that had been revoked, up to 3.4.37, 3.5.22 and 3.6.4 (etcd-io/etcd#20615).
const BELIEVING: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-believing-renewal",
        "",
        "as redis-token, but a renewal that finds no lock says that it has renewed it",
        Kind::Token,
        |seat| {
            let changed = "local value = redis.call('GET', KEYS[1])\nif value and value ~= ARGV[1] then return 0 end";
            TOKEN.with_renew(COMPARE, changed).backend(seat).boxed()
        },
    ),
    flaw: "the holder of a lock that is gone goes on beside the next one",
    caught_by: &["S31"],
};

/// A renewal by a timer, whose errors are logged at best.
const REFUSED: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-refused-renewal",
        "",
        "as redis-token, but a renewal counts whatever becomes of it",
        Kind::Token,
        |seat| async { flawed(Refused(ours(Kind::Token, seat).await?)) }.boxed(),
    ),
    flaw: "a server that refuses every write lets the holder go on for ever",
    caught_by: &["S26c"],
};

struct Refused(Arc<dyn Backend>);

#[async_trait]
impl Flaw for Refused {
    fn ours(&self) -> &dyn Backend {
        &*self.0
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        let sent_at = Moment::now();
        let answers = self.0.renew(batch).await;
        let count = |(renew, answer): (&Renew<'_>, Result<Renewal>)| {
            Ok(answer.unwrap_or_else(|_logged| Renewal::new(sent_at, renew.ttl)))
        };
        batch.iter().zip(answers).map(count).collect()
    }
}

/// Redisson 4.4 (redisson/redisson#7272): the end of a renewal comes before its beginning, and it renews whatever its owner
/// holds later, for half a minute each time (`lockWatchdogTimeout`).
const OUTLIVING: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-reentrant-outliving-renewal",
        "",
        "as redis-reentrant, but the renewal of a hold asks for the owner alone, and nothing ends it",
        Kind::Reentrant,
        |seat| outliving(seat).boxed(),
    ),
    flaw: "a lock that its owner takes again later never ends",
    caught_by: &["S28"],
};

async fn outliving(seat: &Seat) -> Result<Arc<dyn Backend>> {
    let line =
        "if redis.call('SISMEMBER', KEYS[2], ARGV[2]) == 0 and redis.call('EXISTS', KEYS[2]) == 1 then return 0 end";
    flawed(Outliving(REENTRANT.with_renew(line, "").backend(seat).await?))
}

struct Outliving(Arc<dyn Backend>);

impl Outliving {
    /// Begins the renewals of a grant, if it is to have any.
    fn begin(&self, grant: Option<Grant>) -> Option<Grant> {
        let (ours, grant) = (Arc::clone(&self.0), grant?);
        if grant.claim.lease.is_renewed() {
            let grant = grant.clone();
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(grant.ttl / 3).await;
                    drop(ours.renew(&[Renew::new(&grant, Duration::from_secs(30))]).await);
                }
            });
        }
        Some(grant)
    }
}

#[async_trait]
impl Flaw for Outliving {
    fn ours(&self) -> &dyn Backend {
        &*self.0
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        Ok(self.begin(self.0.try_acquire(claim).await?))
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        Ok(self.begin(self.0.acquire(claim, stop).await?))
    }
}
