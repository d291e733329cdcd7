use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::flag::Flag;
use crate::{Claim, FencingToken, Moment};

/// A backend's yes to a claim.
#[derive(Clone)]
#[non_exhaustive]
pub struct Grant {
    /// The claim that was granted.
    pub claim: Claim,
    /// A number that grows with every grant of the key, where the backend has one.
    pub fencing_token: Option<FencingToken>,
    /// Just before the last request that restarted the ttl was sent.
    pub sent_at: Moment,
    /// The ttl that the store really gave; it may differ from what was asked.
    pub ttl: Duration,
    /// What the backend needs to renew and release this grant.
    pub state: Option<Arc<dyn Any + Send + Sync>>,
    /// Fired by the backend when it learns of a loss before the next renewal would.
    pub loss: Option<LossSignal>,
}

impl Grant {
    /// A grant without fencing token, state or signal.
    #[must_use]
    pub fn new(claim: Claim, sent_at: Moment, ttl: Duration) -> Self {
        Self { claim, fencing_token: None, sent_at, ttl, state: None, loss: None }
    }

    /// The same grant with a fencing token.
    #[must_use]
    pub fn with_fencing_token(mut self, token: FencingToken) -> Self {
        self.fencing_token = Some(token);
        self
    }

    /// The same grant with state that only its backend reads.
    #[must_use]
    pub fn with_state(mut self, state: Arc<dyn Any + Send + Sync>) -> Self {
        self.state = Some(state);
        self
    }

    /// The same grant with a signal that the driver will listen to.
    #[must_use]
    pub fn with_loss_signal(mut self, signal: LossSignal) -> Self {
        self.loss = Some(signal);
        self
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("claim", &self.claim)
            .field("fencing_token", &self.fencing_token)
            .field("sent_at", &self.sent_at)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

/// One renewal that a backend is asked for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Renew<'a> {
    /// The grant whose ttl is to be restarted.
    pub grant: &'a Grant,
    /// The ttl to restart it with; never shorter than any that this grant was given before.
    pub ttl: Duration,
}

impl<'a> Renew<'a> {
    /// A renewal of `grant` with `ttl`.
    #[must_use]
    pub const fn new(grant: &'a Grant, ttl: Duration) -> Self {
        Self { grant, ttl }
    }
}

/// A backend's yes to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewal {
    /// Just before the request that restarted the ttl was sent.
    pub sent_at: Moment,
    /// The ttl that the store really gave.
    pub ttl: Duration,
}

impl Renewal {
    /// A renewal whose request was sent at `sent_at`.
    #[must_use]
    pub const fn new(sent_at: Moment, ttl: Duration) -> Self {
        Self { sent_at, ttl }
    }
}

/// How a backend tells the driver at once that a grant is lost, such as when a session has ended. Clones share one signal.
#[derive(Clone, Debug, Default)]
pub struct LossSignal(Flag);

impl LossSignal {
    /// A signal that has not been fired.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that every grant that carries this signal is lost. Final.
    pub fn fire(&self) {
        self.0.raise();
    }

    /// Whether it has been fired.
    #[must_use]
    pub fn is_fired(&self) -> bool {
        self.0.is_raised()
    }

    /// Waits until it is fired.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost if the future is dropped.
    pub async fn fired(&self) {
        self.0.raised().await;
    }
}
