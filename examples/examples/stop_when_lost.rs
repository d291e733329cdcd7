//! How do I stop my work when the lock is lost?
//!
//! A lock is lost when its deadline passes without a renewal (the process was paused, the store was away) or when the store
//! says that it is not ours any more. Give the work to `run`, which cancels it then and answers `Lost`. Or keep the guard,
//! and wait for `lost` beside the work; `watch` gives other tasks a handle on the same.

use std::future::pending;
use std::time::Duration;

use lock_core::{ErrorKind, Lease, Locks, LossReason, Result};
use lock_memory::Memory;

#[tokio::main]
async fn main() -> Result<()> {
    let locks = Locks::new(Memory::new());
    let lock = locks.lock("report")?.lease(Lease::renewed(Duration::from_millis(300)));

    // The work ends with the lock.
    let outcome = lock
        .run(async |_guard| {
            take_it_away(&locks).await.expect("this store does not fail");
            pending::<()>().await;
        })
        .await;
    assert_eq!(outcome.expect_err("cancelled").kind(), ErrorKind::Lost);
    println!("run: the work was cancelled");

    // The same by hand.
    let guard = lock.acquire().await?;
    let watch = guard.watch();
    let elsewhere = tokio::spawn(async move { watch.lost().await });
    take_it_away(&locks).await?;
    tokio::select! {
        reason = guard.lost() => assert_eq!(reason, LossReason::NotHeld),
        () = pending() => unreachable!("the work has no end"),
    }
    assert!(!guard.is_held());
    assert_eq!(elsewhere.await.expect("the watching task panicked"), LossReason::NotHeld);
    println!("lost: the guard and its watch both said so");
    Ok(())
}

/// What an operator may do, whoever holds the lock.
async fn take_it_away(locks: &Locks) -> Result<()> {
    let lock = locks.lock("report")?;
    let _ = locks.backend().force_release(lock.key()).await?;
    Ok(())
}
