//! How do I hold a lock for a limited time only?
//!
//! With `Lease::fixed`: nobody renews it, so it ends by itself, whatever the holder does. Who needs longer asks for it with
//! `extend`, which replaces what is left of the lease, and fails if the lock has been lost.

use std::time::Duration;

use lock_core::{ErrorKind, Lease, Locks, LossReason, Result};
use lock_memory::Memory;

#[tokio::main]
async fn main() -> Result<()> {
    let locks = Locks::new(Memory::new());
    let lock = locks.lock("turn")?.lease(Lease::fixed(Duration::from_secs(10)));

    let guard = lock.acquire().await?;
    assert!(guard.remaining() <= Duration::from_secs(10));

    guard.extend(Duration::from_secs(60)).await?;
    assert!(guard.remaining() > Duration::from_secs(10), "replaced");
    assert!(guard.remaining() <= Duration::from_secs(60), "and not added");

    // Less is possible too: the deadline comes nearer at once.
    guard.extend(Duration::from_millis(100)).await?;
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert_eq!(guard.extend(Duration::from_secs(1)).await.expect_err("it is over").kind(), ErrorKind::Lost);
    println!("the turn is over");

    let next = lock.acquire().await?;
    assert!(next.is_held());
    Ok(())
}
