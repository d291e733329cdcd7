//! How do I wait for a lock, but not for ever?
//!
//! `acquire_within` waits as long as you say. If it fails, the kind of the error tells why: `TimedOut` means that somebody
//! else held the lock all the while, so try later; `Unavailable` means that the store could not be asked, so something needs
//! mending. `try_acquire` does not wait at all, and to it a held lock is an answer and no error.

use std::time::Duration;

use lock_core::{ErrorKind, Locks, Result};
use lock_memory::Memory;

#[tokio::main]
async fn main() -> Result<()> {
    let memory = Memory::new();
    // Two `Locks` on one store stand for two processes.
    let (ours, theirs) = (Locks::new(memory.clone()), Locks::new(memory));
    let held = theirs.lock("orders/42")?.acquire().await?;

    let lock = ours.lock("orders/42")?;
    assert!(lock.try_acquire().await?.is_none());

    match lock.acquire_within(Duration::from_millis(100)).await {
        Ok(_guard) => unreachable!("somebody else holds it"),
        Err(error) if error.kind() == ErrorKind::TimedOut => println!("busy, come back later: {error}"),
        Err(error) if error.kind() == ErrorKind::Unavailable => panic!("the store is away: {error}"),
        Err(error) => return Err(error),
    }

    drop(held);
    let guard = lock.acquire_within(Duration::from_secs(10)).await?;
    assert!(guard.is_held());
    println!("got it after they let go");
    Ok(())
}
