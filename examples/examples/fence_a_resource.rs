//! What if a holder is paused and writes after it has lost the lock?
//!
//! No lock can stop it: it believes that it still holds. But the resource can. Every grant of a key has a fencing token that
//! is greater than all before; send it along with each write, and let the resource refuse a token smaller than one it has
//! seen. `Fence` does that for a resource in this process; in a database it is one condition of the UPDATE.

use std::sync::Mutex;
use std::time::Duration;

use lock_core::{ErrorKind, Fence, FencingToken, Lease, Locks, Result};
use lock_memory::Memory;

#[tokio::main]
async fn main() -> Result<()> {
    let memory = Memory::new();
    let (ours, theirs) = (Locks::new(memory.clone()), Locks::new(memory));
    let file = File::default();

    let late = ours.lock("file")?.lease(Lease::fixed(Duration::from_millis(50))).acquire().await?;
    let old = late.fencing_token().expect("this backend has tokens");

    // We are paused. The lease ends, and the next one gets the lock and writes.
    let next = theirs.lock("file")?.acquire().await?;
    let new = next.fencing_token().expect("this backend has tokens");
    assert!(new > old);
    file.write(new, "theirs")?;

    // We wake up and write what we had in mind.
    let refused = file.write(old, "ours").expect_err("a smaller token");
    assert_eq!(refused.kind(), ErrorKind::Lost);
    assert_eq!(file.read(), "theirs");
    println!("{refused}");
    Ok(())
}

/// A resource that knows the greatest token that wrote to it.
#[derive(Default)]
struct File {
    fence: Fence,
    content: Mutex<String>,
}

impl File {
    /// Check and write are one step, because the mutex is held over both.
    fn write(&self, token: FencingToken, text: &str) -> Result<()> {
        let mut content = self.content.lock().expect("no writer panics");
        self.fence.admit(token)?;
        text.clone_into(&mut content);
        Ok(())
    }

    fn read(&self) -> String {
        self.content.lock().expect("no writer panics").clone()
    }
}
