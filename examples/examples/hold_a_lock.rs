//! How do I hold a lock while I work?
//!
//! Make one `Locks` for the program and ask it for locks by name. `acquire` waits for its turn and returns a guard. While the
//! guard lives, its lease is renewed, so the work may take longer than the lease. `release` gives the lock back and says
//! whether it was still ours; dropping the guard gives it back too, but nobody hears how that ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lock_core::{Locks, Release, Result};
use lock_memory::Memory;

#[tokio::main]
async fn main() -> Result<()> {
    let locks = Locks::new(Memory::new());
    let stock = Arc::new(AtomicU32::new(0));

    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (locks, stock) = (locks.clone(), Arc::clone(&stock));
            tokio::spawn(async move { count_one_in(&locks, &stock).await })
        })
        .collect();
    for worker in workers {
        worker.await.expect("a worker panicked")?;
    }

    assert_eq!(stock.load(Ordering::Relaxed), 8, "no update was lost");
    println!("eight workers counted to {}", stock.load(Ordering::Relaxed));
    locks.shutdown().await
}

/// Reads, thinks and writes: three steps that only a lock keeps together.
async fn count_one_in(locks: &Locks, stock: &AtomicU32) -> Result<()> {
    let guard = locks.lock("stock/42")?.acquire().await?;
    let read = stock.load(Ordering::Relaxed);
    tokio::task::yield_now().await;
    stock.store(read + 1, Ordering::Relaxed);
    assert_eq!(guard.release().await?, Release::Released);
    Ok(())
}
