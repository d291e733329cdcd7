//! The lease rules and the driver, in virtual time, against a scripted store.

mod acquire;
mod cancel;
mod keeper;
mod lease;
mod outage;
mod release;
mod run;
mod shutdown;
mod simulation;
mod store;

use std::sync::Arc;
use std::time::Duration;

use store::Store;

use crate::{Lease, Locks, Moment, Options};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const TTL: Duration = ms(1_000);

/// Locks on `store`, with leases of one second, renewed.
fn locks(store: &Store) -> Locks {
    locks_with(store, Options::new())
}

fn locks_with(store: &Store, options: Options) -> Locks {
    Locks::with_options(Arc::new(store.clone()), options.with_lease(Lease::renewed(TTL)))
}

/// Lets every task that can go on do so, and time pass by `duration`.
async fn pass(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Lets every task that can go on do so, at this moment.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

fn since(start: Moment) -> Duration {
    Moment::now().saturating_duration_since(start)
}
