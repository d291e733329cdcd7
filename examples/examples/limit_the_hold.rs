//! How do I get a lock back from a holder that hangs?
//!
//! A renewed lease lives as long as its process, also when the work in it is stuck. `Options::with_max_hold` sets an end: the
//! lock is then lost with a reason of its own and given back, and the guard says so.

use std::time::Duration;

use lock_core::{Locks, LossReason, Options, Result};
use lock_memory::Memory;

#[tokio::main]
async fn main() -> Result<()> {
    let memory = Memory::new();
    let limited = Locks::with_options(
        std::sync::Arc::new(memory.clone()),
        Options::new().with_max_hold(Duration::from_millis(200)),
    );

    let hanging = limited.lock("orders/42")?.acquire().await?;
    assert_eq!(hanging.lost().await, LossReason::MaxHold);

    // The guard still exists; the lock is free all the same.
    let next = Locks::new(memory).lock("orders/42")?.acquire_within(Duration::from_secs(10)).await?;
    assert!(next.is_held() && !hanging.is_held());
    println!("the hanging holder lost its lock after 200 ms");
    Ok(())
}
