//! How a waiter learns that the lock is free.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use lock_core::{Backend, Claim, Grant, Result, Stop};
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind};
use tokio::sync::Notify;

use super::Mutant;
use super::flawed::{Flaw, failed, flawed, ours};
use crate::Strategy;
use crate::strategy::{Kind, Seat};

pub(super) const ALL: &[Mutant] = &[NO_SECOND_TRY, NO_TIMER];

/// Redisson's changes tell of it: waiters that "miss unlock messages and wait a defined timeout ... or hang".
const NO_SECOND_TRY: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-no-second-try",
        "",
        "as redis-token, but a waiter that has subscribed trusts the message, and does not try again",
        Kind::Token,
        |seat| waiter(seat, false).boxed(),
    ),
    flaw: "a release between the try and the subscription is never heard of",
    caught_by: &["S50"],
};

/// The channel tells of releases alone: redis.io, "Redis keyspace notifications", has expiry only where it is switched on.
const NO_TIMER: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-no-timer",
        "",
        "as redis-token, but a waiter sleeps until it is told",
        Kind::Token,
        |seat| waiter(seat, true).boxed(),
    ),
    flaw: "nobody tells of a lease that has ended by itself",
    caught_by: &["S52"],
};

async fn waiter(seat: &Seat, tries_again: bool) -> Result<Arc<dyn Backend>> {
    let url = seat.urls.first().map_or("", String::as_str);
    let redis = Client::open(format!("{url}/?protocol=resp3")).map_err(|error| failed("connect", error))?;
    flawed(Waiter { ours: ours(Kind::Token, seat).await?, redis, tries_again })
}

struct Waiter {
    ours: Arc<dyn Backend>,
    redis: Client,
    /// Whether it tries again when it has subscribed.
    tries_again: bool,
}

#[async_trait]
impl Flaw for Waiter {
    fn ours(&self) -> &dyn Backend {
        &*self.ours
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        if let Some(grant) = self.ours.try_acquire(claim).await? {
            return Ok(Some(grant));
        }
        stop.report_waiting();
        let told = Arc::new(Notify::new());
        let teller = Arc::clone(&told);
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Message {
                teller.notify_one();
            }
            Ok::<(), redis::aio::SendError>(())
        });
        let connected = self.redis.get_multiplexed_async_connection_with_config(&config).await;
        let mut redis = connected.map_err(|error| failed("acquire", error))?;
        // As `lock_redis` names it.
        let channel = format!("hasp-released:{{hasp:{}}}", claim.key);
        redis.subscribe(channel).await.map_err(|error| failed("acquire", error))?;
        let mut trusts = !self.tries_again;
        loop {
            if !std::mem::take(&mut trusts)
                && let Some(grant) = self.ours.try_acquire(claim).await?
            {
                return Ok(Some(grant));
            }
            tokio::select! {
                biased;
                () = stop.fired() => return Ok(None),
                () = told.notified() => {}
            }
        }
    }
}
