use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::{self, Held};
use crate::locks::Handle;
use crate::{Error, FencingToken, LockKey, Moment, Release, Result, lease};

/// The proof of holding a lock. Dropping it gives the lock back.
///
/// Before each effect that the lock guards, look at [`is_held`](LockGuard::is_held) or at the
/// [`deadline`](LockGuard::deadline); while work goes on, listen to [`lost`](LockGuard::lost) or let
/// [`Lock::run`](crate::Lock::run) do that.
///
/// [`release`](LockGuard::release) says how it ended. Dropping is best effort: it never blocks, spawns or fails, it hands the
/// release to the keeper, which sends it as soon as it runs and repeats it until the lease is over. A program that ends before
/// that leaves the lock to run out with its lease; [`Locks::shutdown`](crate::Locks::shutdown) waits for it.
#[must_use = "a guard that is dropped gives its lock back at once"]
pub struct LockGuard {
    handle: Arc<Handle>,
    held: Option<Arc<Held>>,
}

impl LockGuard {
    pub(crate) fn new(handle: &Arc<Handle>, held: Arc<Held>) -> Self {
        Self { handle: Arc::clone(handle), held: Some(held) }
    }

    /// What is locked.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.held().grant.claim.key
    }

    /// A number that grew with this grant, where the backend has one. Send it along with every write: a resource that refuses
    /// smaller ones ([`Fence`](crate::Fence)) is safe from holders that do not know yet that they were replaced.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.held().grant.fencing_token
    }

    /// Until when the holder may act, as far as is known now: a renewal moves it on.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.held().deadline()
    }

    /// How long the holder may still act if no renewal succeeds; zero once the lock is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        remaining(self.held())
    }

    /// Whether the lock is held now. Exact: it reads the clock, and needs no reply and no other task.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held().loss().is_none()
    }

    /// Resolves when the lock is lost, with the reason: at the deadline at the latest (a timer tick later), whatever the
    /// network does. Lost is final.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost if the future is dropped.
    pub async fn lost(&self) -> LossReason {
        self.held().lost().await
    }

    /// A handle on the same, for other tasks. It does not keep the lock.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch { held: Arc::clone(self.held()) }
    }

    /// Replaces the lease by one that ends `ttl` from now, if it is not renewed or extended again; never adds to it, and never
    /// makes a lost lock again. A renewed lease is renewed with the new ttl from here on.
    ///
    /// Bringing the end nearer asks nobody: the deadline comes nearer at once, and a lease that is not renewed is given back
    /// then. Everything else is one request, which waits for a renewal in flight to end.
    ///
    /// # Errors
    ///
    /// `Lost` if the lock is lost, then or meanwhile; `InvalidInput` if `ttl` is out of the backend's range. With any other
    /// error the lease stands as it was, and with [`Effect::Unknown`](crate::Effect::Unknown) the store may keep the lock for
    /// longer than the guard.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer: the extension may take place or not.
    pub async fn extend(&self, ttl: Duration) -> Result<()> {
        let (driver, held) = (&self.handle.driver, self.held());
        lease::check_ttl(ttl, driver.backend.guarantees().min_ttl, driver.backend.name(), "extend")
            .map_err(|error| error.with_key(self.key()))?;
        if held.shorten(ttl).map_err(|reason| held.lost_error("extend", reason))? {
            driver.reconsider(held);
            return Ok(());
        }
        let answer = held.request_extension(ttl);
        driver.reconsider(held);
        driver.ensure_keeper();
        match answer.await {
            Ok(answer) => answer,
            Err(_unanswered) => Err(held.lost_error("extend", held.lost().await)),
        }
    }

    /// Gives the lock back and says how that ended. It is sent also after the deadline: the store answers, never the driver.
    ///
    /// A release that the store does not answer is repeated for
    /// [`Options::unavailable_after`](crate::Options::unavailable_after), and not beyond the lease, but at least once. It ends
    /// in bounded time with every node down.
    ///
    /// # Errors
    ///
    /// Where the release failed. Renewal has stopped all the same, the keeper goes on releasing, and the lock ends with its
    /// lease at the latest.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer only: the keeper goes on with the release.
    pub async fn release(mut self) -> Result<Release> {
        match self.held.take() {
            Some(held) => driver::give_back(&self.handle.driver, held).await,
            None => Ok(Release::NotHeld),
        }
    }

    pub(crate) fn lost_error(&self, operation: &'static str, reason: LossReason) -> Error {
        self.held().lost_error(operation, reason)
    }

    fn held(&self) -> &Arc<Held> {
        self.held.as_ref().expect("only `release` takes it, with the guard")
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.handle.driver.drop_guard(&held);
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", &self.held.as_ref().map(|held| &held.grant.claim.key))
            .field("remaining", &self.held.as_ref().map(remaining))
            .finish_non_exhaustive()
    }
}

/// A look at a held lock from elsewhere: `'static` and cheap to clone. It neither keeps the lock nor gives it back.
#[derive(Clone)]
pub struct Watch {
    held: Arc<Held>,
}

impl Watch {
    /// As [`LockGuard::is_held`]; false also after the guard has been given back.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.loss().is_none()
    }

    /// As [`LockGuard::deadline`].
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.held.deadline()
    }

    /// As [`LockGuard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        remaining(&self.held)
    }

    /// As [`LockGuard::lost`]; resolves with [`LossReason::Released`] when the guard is given back.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost if the future is dropped.
    pub async fn lost(&self) -> LossReason {
        self.held.lost().await
    }

    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.held.loss()
    }

    pub(crate) fn lost_error(&self, operation: &'static str, reason: LossReason) -> Error {
        self.held.lost_error(operation, reason)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("key", &self.held.grant.claim.key)
            .field("remaining", &remaining(&self.held))
            .finish()
    }
}

fn remaining(held: &Arc<Held>) -> Duration {
    if held.loss().is_some() { Duration::ZERO } else { held.deadline().remaining() }
}

/// Why a lock is no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The deadline passed: a fixed lease ended, or no renewal was answered in time.
    Expired,
    /// The store says that the lock is not ours: it was taken away, or its data or session was lost.
    NotHeld,
    /// [`Options::max_hold`](crate::Options::max_hold) was reached.
    MaxHold,
    /// Not a loss: the guard was given back.
    Released,
    /// [`Locks::shutdown`](crate::Locks::shutdown) was called.
    ShutDown,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its deadline passed without a renewal",
            Self::NotHeld => "the store says that it is not ours",
            Self::MaxHold => "it was held for the longest that is allowed",
            Self::Released => "it was given back",
            Self::ShutDown => "its `Locks` was shut down",
        })
    }
}
