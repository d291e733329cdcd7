//! May I drop a future that waits for a lock, in `select!` or by a timeout?
//!
//! Yes, at any time. A place in the queue is given up, and a grant that was on its way is given back by the keeper.

use std::time::Duration;

use lock_core::{Locks, Result};
use lock_memory::Memory;

#[tokio::main]
async fn main() -> Result<()> {
    let locks = Locks::new(Memory::new());
    let lock = locks.lock("orders/42")?;
    let held = lock.acquire().await?;

    tokio::select! {
        _guard = lock.acquire() => unreachable!("it is held"),
        () = tokio::time::sleep(Duration::from_millis(50)) => println!("changed our mind"),
    }

    // Nobody stands before the next one.
    let _ = held.release().await?;
    let next = lock.acquire_within(Duration::from_secs(10)).await?;
    assert!(next.is_held());
    Ok(())
}
