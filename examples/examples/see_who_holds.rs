//! Who holds this lock, and how do I take it away?
//!
//! Give your program's holders a label. `inspect` then tells who holds, with which fencing token and for how long if nobody
//! renews; `list` names what is held; `force_release` frees a lock whoever holds it, and the holder finds out at its next
//! renewal. A store may know less: what it does not know is `None`.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Lease, Locks, LossReason, Options, Release, Result};
use lock_memory::Memory;

#[tokio::main]
async fn main() -> Result<()> {
    let options =
        Options::new().with_label("billing-7 (pid 4711)").with_lease(Lease::renewed(Duration::from_millis(600)));
    let locks = Locks::with_options(Arc::new(Memory::new()), options);
    let guard = locks.lock("invoices/2026")?.acquire().await?;

    let store = locks.backend();
    for key in store.list("invoices/").await? {
        let found = store.inspect(&key).await?;
        println!("{key}: held by {:?}, {:?} left", found.label, found.remaining);
        assert_eq!(found.label.as_deref(), Some("billing-7 (pid 4711)"));
        assert_eq!(found.fencing_token, guard.fencing_token());
    }

    assert_eq!(store.force_release(guard.key()).await?, Release::Released);
    assert_eq!(guard.lost().await, LossReason::NotHeld);
    assert_eq!(store.list("").await?, []);
    println!("taken away; the holder knows");
    Ok(())
}
