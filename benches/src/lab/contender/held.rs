//! What a client has in its contender: an acquisition that has begun, a lock, or a claim.

use std::time::Duration;

use super::Client;
use super::link::Pending;
use crate::Failure;
use crate::lab::protocol::{Answer, Ask, Resource, Wanted};

/// An acquisition that has begun.
pub(crate) struct Acquiring {
    pub(super) client: Client,
    pub(super) hold: String,
    pub(super) pending: Pending,
}

impl Acquiring {
    /// Waits until it is granted; any other answer is a failure of the scenario.
    pub(crate) async fn held(self) -> Result<Held, Failure> {
        let name = self.client.name.clone();
        match self.outcome().await? {
            Ok(held) => Ok(held),
            Err(answer) => Err(format!("{name} acquires, and the answer is {answer:?}").into()),
        }
    }

    /// Waits for its answer, whatever that is.
    pub(crate) async fn outcome(self) -> Result<Result<Held, Answer>, Failure> {
        let Self { client, hold, pending } = self;
        Ok(match pending.answer().await? {
            Answer::Granted { .. } => Ok(Held { client, hold }),
            other => Err(other),
        })
    }

    /// Whether there is an answer, without waiting.
    pub(crate) fn is_answered(&mut self) -> bool {
        self.pending.is_answered()
    }

    /// Drops its future in the contender.
    pub(crate) async fn cancel(self) -> Result<(), Failure> {
        let id = self.pending.id;
        self.client.ask(Ask::Cancel { id }).await?.done("cancels")
    }

    /// The same, and gives back what may have been granted meanwhile.
    pub(crate) async fn give_up(self) -> Result<(), Failure> {
        let held = Held { client: self.client.clone(), hold: self.hold.clone() };
        self.cancel().await?;
        // If it was not granted, there is nothing to release, and the answer says so.
        held.release().await.map(drop)
    }
}

/// A lock that a contender holds. It holds it until it is told to release it, whatever becomes of this value.
#[derive(Clone)]
pub(crate) struct Held {
    pub(super) client: Client,
    pub(super) hold: String,
}

impl Held {
    /// Whether the guard says that it is held; that is written down as something that its holder acts on.
    pub(crate) async fn is_held(&self) -> Result<bool, Failure> {
        Ok(matches!(self.client.ask(Ask::Look { hold: self.hold.clone() }).await?, Answer::Held { .. }))
    }

    /// How long the guard has to go; none if it is lost.
    pub(crate) async fn remaining(&self) -> Result<Option<Duration>, Failure> {
        Ok(match self.client.ask(Ask::Look { hold: self.hold.clone() }).await? {
            Answer::Held { remaining } => Some(remaining),
            _ => None,
        })
    }

    /// Waits until the guard says that it is lost: why.
    pub(crate) async fn lost(&self) -> Result<String, Failure> {
        match self.client.ask(Ask::Lost { hold: self.hold.clone() }).await? {
            Answer::Lost { reason } => Ok(reason),
            other => Err(format!("waited for a loss, and the answer is {other:?}").into()),
        }
    }

    /// If its guard says that it is held, writes a resource that counts its writes.
    pub(crate) async fn write(&self, resource: &Resource) -> Result<Answer, Failure> {
        let (resource, hold) = (resource.clone(), self.hold.clone());
        self.client.ask(Ask::WriteHeld { resource, hold }).await
    }

    pub(crate) async fn extend(&self, ttl: Duration) -> Result<Answer, Failure> {
        self.extending(ttl)?.answer().await
    }

    pub(crate) fn extending(&self, ttl: Duration) -> Result<Pending, Failure> {
        self.client.begin(Ask::Extend { hold: self.hold.clone(), ttl })
    }

    pub(crate) async fn release(&self) -> Result<Answer, Failure> {
        self.releasing()?.answer().await
    }

    pub(crate) fn releasing(&self) -> Result<Pending, Failure> {
        self.client.begin(Ask::Release { hold: self.hold.clone() })
    }

    /// Drops the guard.
    pub(crate) async fn drop_guard(&self) -> Result<(), Failure> {
        self.client.ask(Ask::Drop { hold: self.hold.clone() }).await?.done("drops its guard")
    }
}

/// A claim that is put to the backend itself.
#[derive(Clone)]
pub(crate) struct Claimed {
    pub(super) client: Client,
    pub(super) claim: String,
    pub(super) wanted: Wanted,
}

impl Claimed {
    /// Tries once; the same claim again finds its own grant where the strategy can.
    pub(crate) async fn try_acquire(&self) -> Result<Answer, Failure> {
        self.trying()?.answer().await
    }

    pub(crate) fn trying(&self) -> Result<Pending, Failure> {
        let (client, wanted) = (self.client.name.clone(), self.wanted.clone());
        self.client.begin(Ask::RawAcquire { client, wanted, claim: self.claim.clone() })
    }

    pub(crate) async fn renew(&self, ttl: Duration) -> Result<Answer, Failure> {
        self.renewing(ttl)?.answer().await
    }

    pub(crate) fn renewing(&self, ttl: Duration) -> Result<Pending, Failure> {
        self.client.begin(Ask::RawRenew { claim: self.claim.clone(), ttl })
    }

    pub(crate) async fn release(&self) -> Result<Answer, Failure> {
        self.releasing()?.answer().await
    }

    pub(crate) fn releasing(&self) -> Result<Pending, Failure> {
        self.client.begin(Ask::RawRelease { claim: self.claim.clone() })
    }

    pub(crate) async fn abandon(&self) -> Result<Answer, Failure> {
        self.client.ask(Ask::RawAbandon { claim: self.claim.clone() }).await
    }
}
