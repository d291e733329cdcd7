//! My work blocks its thread. Is my lease renewed all the same?
//!
//! Only while another worker of the runtime is free, because the keeper is a task like any other. In a program that may block
//! all of them give the keeper a runtime of its own, with `Options::with_keeper_on`. A lease that was not renewed is lost, and
//! the guard knows it, whoever was blocked.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use lock_core::{Lease, Locks, Options, Result};
use lock_memory::Memory;
use tokio::runtime::{Builder, Runtime};

fn main() -> Result<()> {
    let lease = Lease::renewed(Duration::from_secs(1));
    let only = Builder::new_current_thread().enable_all().build().expect("a runtime of one thread");

    only.block_on(async {
        let locks = Locks::new(Memory::new());
        let guard = locks.lock("report")?.lease(lease).acquire().await?;
        sleep(Duration::from_millis(1_500));
        assert!(!guard.is_held(), "nobody could renew it");
        Ok(())
    })?;

    let keepers = Runtime::new().expect("a runtime");
    only.block_on(async {
        let options = Options::new().with_keeper_on(keepers.handle().clone());
        let locks = Locks::with_options(Arc::new(Memory::new()), options);
        let guard = locks.lock("report")?.lease(lease).acquire().await?;
        sleep(Duration::from_millis(1_500));
        assert!(guard.is_held(), "the keeper renewed it beside the blocked thread");
        println!("blocked for a lease and a half, and still held");
        Ok(())
    })
}
