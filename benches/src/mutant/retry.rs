//! A request whose reply was lost, and its repetition.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use lock_core::{Backend, Claim, Grant, Result, Stop};

use super::Mutant;
use super::flawed::{Flaw, flawed, ours};
use super::script::{REENTRANT, TOKEN};
use crate::Strategy;
use crate::strategy::{Kind, Seat};

pub(super) const ALL: &[Mutant] = &[PLAIN_NX, NO_GUID, COUNTS_TWICE, DECREMENTS_TWICE];

/// What redis.io, "Distributed Locks with Redis", gives for a single instance: `SET resource value NX PX ttl`, and nothing for
/// the one whose reply is lost.
const PLAIN_NX: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-plain-nx",
        "",
        "as redis-token, but whoever finds the key takes it for another's",
        Kind::Token,
        |seat| {
            let scripts = TOKEN.with_acquire("if redis.call('GET', KEYS[1]) ~= ARGV[1] then", "if true then");
            scripts.backend(seat).boxed()
        },
    ),
    flaw: "a repetition after a lost reply locks its own client out",
    caught_by: &["S04"],
};

/// `ZooKeeper`'s recipe "Locks" warns of it under "Important Note About Locks": the GUID in the name finds the node again.
const NO_GUID: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-zookeeper-no-guid",
        "",
        "as zookeeper, but every create has another name, by which nobody finds the node again",
        Kind::ZooKeeper,
        |seat| no_guid(seat).boxed(),
    ),
    flaw: "the node of a create whose reply was lost stands before the next one of the same client",
    caught_by: &["S60", "S04"],
};

async fn no_guid(seat: &Seat) -> Result<Arc<dyn Backend>> {
    flawed(NoGuid(ours(Kind::ZooKeeper, seat).await?))
}

struct NoGuid(Arc<dyn Backend>);

/// The node bears the number of the claim: with another at each try it could as well bear none.
fn another(claim: &Claim) -> Claim {
    Claim::new(claim.key.clone(), claim.owner, claim.lease)
}

#[async_trait]
impl Flaw for NoGuid {
    fn ours(&self) -> &dyn Backend {
        &*self.0
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.0.try_acquire(&another(claim)).await
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        self.0.acquire(&another(claim), stop).await
    }
}

/// Redisson's acquire counts each run of its script, and so sends it with its own retries off (`evalWriteSyncedNoRetryAsync`).
const COUNTS_TWICE: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-reentrant-counts-repeats",
        "",
        "as redis-reentrant, but each run of the acquire counts, whatever the claim",
        Kind::Reentrant,
        |seat| {
            let line = "if redis.call('SADD', KEYS[2], ARGV[2]) == 1 then";
            REENTRANT.with_acquire(line, "if redis.call('SADD', KEYS[2], ARGV[2]) then").backend(seat).boxed()
        },
    ),
    flaw: "a repetition after a lost reply holds twice, and is released once",
    caught_by: &["S63", "S04"],
};

/// Redisson before the latch that it writes for each request of an unlock (`redisson_unlock_latch`).
const DECREMENTS_TWICE: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-reentrant-releases-repeats",
        "",
        "as redis-reentrant, but each run of the release counts, whatever the claim",
        Kind::Reentrant,
        |seat| {
            let line = "local known = redis.call('SISMEMBER', KEYS[2], ARGV[2]) == 1";
            REENTRANT.with_release(line, "local known = true").backend(seat).boxed()
        },
    ),
    flaw: "a repetition after a lost reply ends a hold that is another's",
    caught_by: &["S23"],
};
