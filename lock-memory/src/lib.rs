//! A lock in one process: the embedded default of Hasp, for tests, examples and programs that run once.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lock_core::Result<()> {
//! use lock_core::Locks;
//! use lock_memory::Memory;
//!
//! let locks = Locks::new(Memory::new());
//! let guard = locks.lock("orders/42")?.acquire().await?;
//! assert!(guard.is_held());
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it guarantees
//!
//! The whole contract of `lock-core`: leases that end by themselves, waiters served in the order in which they came,
//! re-entry by owner, and a fencing token that grows with every grant. Code that is tested with it meets the same rules on
//! a real store. Time is [`lock_core::Moment`], so tokio's paused time works.
//!
//! # What it does not
//!
//! It locks nothing outside its process: two processes, or two tables made by [`Memory::new`], know nothing of each other.

mod memory;
mod table;

pub use memory::Memory;
