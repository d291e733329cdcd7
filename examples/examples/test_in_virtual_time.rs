//! How do I test my own code that locks?
//!
//! With `Memory`, which keeps every rule of the contract, and with tokio's paused time: an hour passes at once, and leases
//! are renewed, end and are lost in it exactly as they would be. (With a real store use real time: its server does not
//! wait for a paused clock.)

use std::time::Duration;

use lock_core::{Lease, Locks, LossReason, Result};
use lock_memory::Memory;
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    tokio::time::pause();
    let began = Instant::now();
    let locks = Locks::new(Memory::new());

    let guard = locks.lock("renewed")?.acquire().await?;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(guard.is_held(), "after an hour of renewals");

    let guard = locks.lock("fixed")?.lease(Lease::fixed(Duration::from_secs(60))).acquire().await?;
    assert_eq!(guard.lost().await, LossReason::Expired);

    println!("{:?} of virtual time", began.elapsed());
    Ok(())
}
