use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{
    Backend, Claim, Grant, Guarantees, Inspection, LockKey, Moment, Release, Renew, Renewal, Result, Stop, Undone,
};
use lock_redis::{Token, TokenOptions};

use crate::strategy::Seat;

/// `Token`, whose deadlines count from the reply.
pub(super) async fn token(seat: &Seat) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(FromReply(Token::new(seat.redis().await?, TokenOptions::new()).await?)))
}

#[derive(Debug)]
struct FromReply(Token);

fn from_now(grant: Option<Grant>) -> Option<Grant> {
    let mut grant = grant?;
    grant.sent_at = Moment::now();
    Some(grant)
}

#[async_trait]
impl Backend for FromReply {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        Ok(from_now(self.0.try_acquire(claim).await?))
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        Ok(from_now(self.0.acquire(claim, stop).await?))
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        let renewals = self.0.renew(batch).await;
        renewals.into_iter().map(|renewal| renewal.map(|renewal| Renewal::new(Moment::now(), renewal.ttl))).collect()
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        self.0.release(grant).await
    }

    async fn abandon(&self, claim: &Claim) -> Result<Undone> {
        self.0.abandon(claim).await
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection> {
        self.0.inspect(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockKey>> {
        self.0.list(prefix).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Release> {
        self.0.force_release(key).await
    }

    async fn close(&self) -> Result<()> {
        self.0.close().await
    }
}
