//! How do I run a job on one machine only, although cron starts it on all of them?
//!
//! `try_acquire` with a renewed lease: whoever gets the lock does the job, the others see that it is being done and leave. If
//! the machine dies, its lease ends, and the next run finds the lock free.

use std::time::Duration;

use lock_core::{Locks, Result};
use lock_memory::Memory;

#[tokio::main]
async fn main() -> Result<()> {
    let store = Memory::new();
    let machine = |number| nightly_report(number, Locks::new(store.clone()));

    // Cron fires on three machines at once.
    let (first, second, third) = tokio::join!(machine(1), machine(2), machine(3));

    let reports = [first?, second?, third?].into_iter().filter(|done| *done).count();
    assert_eq!(reports, 1);
    Ok(())
}

/// Whether this machine did the job.
async fn nightly_report(machine: u32, locks: Locks) -> Result<bool> {
    let Some(guard) = locks.lock("nightly-report")?.try_acquire().await? else {
        println!("machine {machine}: somebody else is at it");
        return Ok(false);
    };
    println!("machine {machine}: writing the report");
    tokio::time::sleep(Duration::from_millis(100)).await;
    let _ = guard.release().await?;
    Ok(true)
}
