//! How does a program end without leaving locks behind?
//!
//! Dropping a guard only tells the keeper, a task of the runtime, to give the lock back. If the runtime ends first, the lock
//! stays until its lease is over. `Locks::shutdown` waits for all that is still to be given back; call it last.

use lock_core::{Locks, Result};
use lock_memory::Memory;

fn main() -> Result<()> {
    let store = Memory::new();

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let locks = Locks::new(store.clone());
        for number in 0..100 {
            let guard = locks.lock(format!("orders/{number}"))?.acquire().await?;
            drop(guard);
        }
        locks.shutdown().await
    })?;
    drop(runtime);

    // The next program finds nothing held.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let locks = Locks::new(store);
        assert_eq!(locks.backend().list("").await?, []);
        assert!(locks.lock("orders/0")?.try_acquire().await?.is_some());
        println!("a hundred guards were dropped, and a hundred locks are free");
        Ok(())
    })
}
