//! How a backend waits for a lock: by asking again ([`poll`]) or by being told ([`notified`]).
//!
//! Both ask first, so a free lock costs one request; both tell the driver when the store has said "busy"; and neither drops
//! a request that has been sent.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::Notify;

use crate::{Grant, Result, Stop};

/// The longest that a waiter sleeps without asking again, although it is told of releases: what a lost message costs.
pub const FLOOR: Duration = Duration::from_millis(800);

/// What one try found.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums, reason = "a try either got the lock or did not; failing is an error")]
pub enum Attempt {
    /// We have it.
    Granted(Grant),
    /// Somebody else has it, for `remaining` if the store says so.
    Busy {
        /// How long the holder's entry will live if nobody renews it.
        remaining: Option<Duration>,
    },
}

/// Tries, and tries again every `interval` (jittered by a quarter either way) until granted or stopped.
///
/// # Errors
///
/// The first error of a try.
///
/// # Cancel safety
///
/// As `attempt`: a backend's calls are not dropped by the driver.
pub async fn poll<A, F>(stop: &Stop, interval: Duration, mut attempt: A) -> Result<Option<Grant>>
where
    A: FnMut() -> F + Send,
    F: Future<Output = Result<Attempt>> + Send,
{
    loop {
        if let Attempt::Granted(grant) = attempt().await? {
            return Ok(Some(grant));
        }
        stop.report_waiting();
        tokio::select! {
            biased;
            () = stop.fired() => return Ok(None),
            () = tokio::time::sleep(jittered(interval)) => {}
        }
    }
}

/// Tries, then subscribes, tries again, and from then on tries when the subscription wakes it, when the holder's entry must
/// have ended, or at [`FLOOR`] at the latest (jittered by a quarter downwards).
///
/// `subscribe` returns what keeps the subscription alive; it is dropped on the way out. Its [`Notify`] is to be fired
/// with [`Notify::notify_waiters`] for every message, and also when the connection was lost and is back.
///
/// # Errors
///
/// The first error of a try or of the subscription.
///
/// # Cancel safety
///
/// As `attempt` and `subscribe`: a backend's calls are not dropped by the driver.
pub async fn notified<A, F, S, G, W>(stop: &Stop, mut attempt: A, subscribe: S) -> Result<Option<Grant>>
where
    A: FnMut() -> F + Send,
    F: Future<Output = Result<Attempt>> + Send,
    S: FnOnce() -> G + Send,
    G: Future<Output = Result<W>> + Send,
    W: AsRef<Notify> + Send + Sync,
{
    if let Attempt::Granted(grant) = attempt().await? {
        return Ok(Some(grant));
    }
    stop.report_waiting();
    if stop.is_fired() {
        return Ok(None);
    }
    let subscription = subscribe().await?;
    loop {
        let mut woken = pin!(subscription.as_ref().notified());
        // Registered before the try, so that a release between the try and the sleep is not missed.
        woken.as_mut().enable();
        let remaining = match attempt().await? {
            Attempt::Granted(grant) => return Ok(Some(grant)),
            Attempt::Busy { remaining } => remaining,
        };
        tokio::select! {
            biased;
            () = stop.fired() => return Ok(None),
            () = woken => {}
            () = tokio::time::sleep(nap(remaining)) => {}
        }
    }
}

/// How long to sleep when the holder has `remaining` left: a millisecond more than that, because an entry that ends at
/// its last millisecond is still there during it; and the floor at most, jittered so that a crowd does not stay in step.
fn nap(remaining: Option<Duration>) -> Duration {
    let floor = FLOOR.mul_f64(0.75 + fastrand::f64() / 4.0);
    remaining.map_or(floor, |remaining| floor.min(remaining + Duration::from_millis(1)))
}

/// `interval`, by up to a quarter shorter or longer; never zero, so that no setting makes a busy loop.
fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(0.75 + fastrand::f64() / 2.0).max(Duration::from_millis(1))
}
