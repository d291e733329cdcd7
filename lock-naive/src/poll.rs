use std::time::Duration;

use lock_core::wait::{self, Attempt};
use lock_core::{Backend, Claim, Grant, Result, Stop};

/// How long a waiter sleeps between two tries, as in most published versions.
const INTERVAL: Duration = Duration::from_millis(100);

/// Waits for the lock by asking again and again.
pub(crate) async fn acquire(backend: &dyn Backend, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
    wait::poll(stop, INTERVAL, || async {
        let granted = backend.try_acquire(claim).await?;
        Ok(granted.map_or(Attempt::Busy { remaining: None }, Attempt::Granted))
    })
    .await
}
