use std::sync::Arc;

use super::backoff::Backoff;
use super::{Driver, Held};
use crate::{Claim, Grant, Moment, Release, Result, Undone};

/// What is owed to the store: the release of a grant, and the undoing of a claim whose requests may still land. It is tried
/// until it is settled or `until`, when the claim's ttl is over and the store has forgotten it by itself.
#[derive(Clone, Debug)]
pub(crate) struct Debt {
    owed: Owed,
    /// Whether a release must be followed by an abandon.
    uncertain: bool,
    /// Whether the store has undone the claim once; from then on it is repeated only for requests that may still land.
    undone: bool,
    until: Moment,
    pub(crate) due: Moment,
    backoff: Backoff,
}

#[derive(Clone, Debug)]
enum Owed {
    /// The release of a lease that was handed out.
    Lease(Arc<Held>),
    /// The release of a grant that never was.
    Grant(Box<Grant>),
    /// The undoing of a claim.
    Claim(Claim),
}

impl Debt {
    pub(crate) fn of_lease(held: &Arc<Held>) -> Self {
        Self::new(Owed::Lease(Arc::clone(held)), held.longest_ttl(), held.is_uncertain())
    }

    pub(crate) fn of_grant(grant: Grant, uncertain: bool) -> Self {
        let ttl = grant.claim.lease.ttl().max(grant.ttl);
        Self::new(Owed::Grant(Box::new(grant)), ttl, uncertain)
    }

    pub(crate) fn of_claim(claim: Claim) -> Self {
        let ttl = claim.lease.ttl();
        Self::new(Owed::Claim(claim), ttl, true)
    }

    /// What is still owed after a lease's release has been answered.
    pub(crate) fn after_release(held: &Arc<Held>, answer: &Result<Release>) -> Option<Self> {
        match answer {
            Ok(_) if held.is_uncertain() => Some(Self::of_claim(held.grant.claim.clone())),
            Ok(_) => None,
            Err(_failed) => Some(Self::of_lease(held)),
        }
    }

    fn new(owed: Owed, ttl: std::time::Duration, uncertain: bool) -> Self {
        let now = Moment::now();
        Self {
            owed,
            uncertain,
            undone: false,
            until: now.saturating_add(ttl),
            due: now,
            backoff: Backoff::of_debt(ttl),
        }
    }

    pub(crate) fn claim(&self) -> &Claim {
        match &self.owed {
            Owed::Lease(held) => &held.grant.claim,
            Owed::Grant(grant) => &grant.claim,
            Owed::Claim(claim) => claim,
        }
    }

    /// Whether the store has not taken it back yet.
    pub(crate) fn is_unanswered(&self) -> bool {
        !self.undone
    }

    /// Tries once; returns what is left to be paid.
    pub(crate) async fn pay(mut self, driver: &Driver) -> Option<Self> {
        let released = match &self.owed {
            Owed::Lease(held) => Some(release_once(driver, held).await),
            Owed::Grant(grant) => Some(driver.backend.release(grant).await),
            Owed::Claim(_) => None,
        };
        match released {
            Some(Err(error)) => return self.put_off(&error.to_string()),
            Some(Ok(_)) if !self.uncertain => return None,
            Some(Ok(_)) => self.owed = Owed::Claim(self.claim().clone()),
            None => {}
        }
        match driver.backend.abandon(self.claim()).await {
            Ok(Undone::Settled) => None,
            Ok(Undone::MayStillLand) => {
                self.undone = true;
                self.put_off("a request may still land")
            }
            Err(error) => self.put_off(&error.to_string()),
        }
    }

    /// The same debt, due again after a pause; none if its ttl is over.
    pub(crate) fn put_off(mut self, why: &str) -> Option<Self> {
        let now = Moment::now();
        if self.until <= now {
            tracing::debug!(key = %self.claim().key, why, "not given back within its ttl; the store ends it by itself");
            return None;
        }
        self.due = now.saturating_add(self.backoff.pause()).min(self.until);
        Some(self)
    }
}

/// One release, after the last renewal has ended. The next task of this process may contend once it has ended, whatever it
/// says.
pub(crate) async fn release_once(driver: &Driver, held: &Arc<Held>) -> Result<Release> {
    held.renewal_ended().await;
    let answer = driver.backend.release(&held.grant).await;
    held.free_place();
    answer
}
