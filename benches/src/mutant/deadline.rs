//! Until when a holder may act.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use lock_core::{Backend, Claim, Grant, Moment, Renew, Renewal, Result, Stop};

use super::Mutant;
use super::flawed::{Flaw, flawed, ours};
use crate::Strategy;
use crate::strategy::{Kind, Seat};

pub(super) const ALL: &[Mutant] = &[TOKEN_FROM_REPLY, REDLOCK_FROM_REPLY];

/// A pull request to node-redlock (#167) proposed it; it is what `now + ttl` behind an `await` comes to.
const TOKEN_FROM_REPLY: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-from-reply",
        "",
        "as redis-token, but the deadline counts from the reply",
        Kind::Token,
        |seat| from_reply(Kind::Token, seat).boxed(),
    ),
    flaw: "a slow reply makes the holder believe in more than the store has given",
    caught_by: &["S06"],
};

const REDLOCK_FROM_REPLY: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-redlock-from-reply",
        "",
        "as redlock, but the deadline counts from the last reply of the majority",
        Kind::Redlock,
        |seat| from_reply(Kind::Redlock, seat).boxed(),
    ),
    ..TOKEN_FROM_REPLY
};

async fn from_reply(kind: Kind, seat: &Seat) -> Result<Arc<dyn Backend>> {
    flawed(FromReply(ours(kind, seat).await?))
}

struct FromReply(Arc<dyn Backend>);

fn from_now(mut grant: Grant) -> Grant {
    grant.sent_at = Moment::now();
    grant
}

#[async_trait]
impl Flaw for FromReply {
    fn ours(&self) -> &dyn Backend {
        &*self.0
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        Ok(self.0.try_acquire(claim).await?.map(from_now))
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        Ok(self.0.acquire(claim, stop).await?.map(from_now))
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        let renewals = self.0.renew(batch).await;
        renewals.into_iter().map(|renewal| renewal.map(|renewal| Renewal::new(Moment::now(), renewal.ttl))).collect()
    }
}
