//! Where fencing tokens come from.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use lock_core::{Backend, Claim, FencingToken, Grant, Result, Stop};

use super::Mutant;
use super::flawed::{Flaw, failed, flawed, ours};
use super::script::TOKEN;
use crate::Strategy;
use crate::strategy::{Kind, Seat};

pub(super) const ALL: &[Mutant] = &[INCR, SEQUENCE];

/// INCR of a counter beside the lock, as Redisson's `RFencedLock` has it.
const INCR: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-incr",
        "",
        "as redis-token, but a fencing token is the last one plus one",
        Kind::Token,
        |seat| {
            let line = "local token = time[1] * 1000000 + time[2]";
            TOKEN.with_acquire(line, "local token = 0").backend(seat).boxed()
        },
    ),
    flaw: "a server that has forgotten its counter begins at one again",
    caught_by: &["S43"],
};

/// The ten digits that `ZooKeeper` appends are a signed counter of the parent node, and begin anew with it.
const SEQUENCE: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-zookeeper-sequence",
        "",
        "as zookeeper, but the fencing token is the number in the node's name",
        Kind::ZooKeeper,
        |seat| sequence(seat).boxed(),
    ),
    flaw: "the number begins at zero again when the lock's path has been made anew",
    caught_by: &["S61"],
};

async fn sequence(seat: &Seat) -> Result<Arc<dyn Backend>> {
    flawed(Sequence(ours(Kind::ZooKeeper, seat).await?))
}

struct Sequence(Arc<dyn Backend>);

impl Sequence {
    /// The holder's node is the first in line, which a look shows by its name.
    async fn numbered(&self, grant: Option<Grant>) -> Result<Option<Grant>> {
        const DIGITS: usize = 10;

        let Some(mut grant) = grant else { return Ok(None) };
        let node = self.0.inspect(&grant.claim.key).await?.holder.unwrap_or_default();
        let number = node.get(node.len().saturating_sub(DIGITS)..).and_then(|digits| digits.parse().ok());
        let number = number.ok_or_else(|| failed("acquire", format!("no number in `{node}`")))?;
        grant.fencing_token = Some(FencingToken::new(number));
        Ok(Some(grant))
    }
}

#[async_trait]
impl Flaw for Sequence {
    fn ours(&self) -> &dyn Backend {
        &*self.0
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.numbered(self.0.try_acquire(claim).await?).await
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        self.numbered(self.0.acquire(claim, stop).await?).await
    }
}
