use std::sync::Arc;
use std::time::Duration;

use lock_core::{Backend, Claim, Lease, LockKey, Owner};
use lock_naive::{BlindDelete, GetSet, SetnxExpire};

/// One client of each strategy.
pub(crate) async fn strategies(url: &str) -> Vec<Arc<dyn Backend>> {
    vec![
        Arc::new(SetnxExpire::connect(url).await.expect("the server runs")),
        Arc::new(GetSet::connect(url).await.expect("the server runs")),
        Arc::new(BlindDelete::connect(url).await.expect("the server runs")),
    ]
}

/// A new owner's claim that is not renewed.
pub(crate) fn claim(name: &str, ttl_millis: u64) -> Claim {
    let lease = Lease::fixed(Duration::from_millis(ttl_millis));
    Claim::new(LockKey::new(name).expect("a valid name"), Owner::random(), lease)
}
