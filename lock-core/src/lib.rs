//! The contract of Hasp's distributed locks, and the one driver that keeps their leases.
//!
//! A *backend* (`lock-memory`, `lock-redis`, ...) says how a lock is kept in a store: it implements [`Backend`]. Everything
//! that is the same for every store lives here once, behind [`Locks`]: waiting with a limit, renewing leases, noticing loss
//! on time, giving back what was dropped, and retrying while a store is away.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lock_core::Result<()> {
//! let locks = lock_core::Locks::new(lock_memory::Memory::new());
//! let guard = locks.lock("orders/42")?.acquire().await?;
//! assert!(guard.is_held());
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it guarantees
//!
//! A [`LockGuard`] knows its [deadline](LockGuard::deadline): the instant until which its holder may act, by a clock that
//! also counts the time the machine was suspended. The deadline counts from *before* the request was sent, never from its
//! reply, so a slow network shortens it and never stretches it. [`LockGuard::lost`] fires then, whatever the network does.
//!
//! # What it does not
//!
//! No lock can stop a paused process: a holder that stops between its check and its write may write after its deadline.
//! Where a double write does damage, send the [`FencingToken`] along and let the resource refuse old ones ([`Fence`] shows
//! how). What a *store* can lose is stated by each backend's [`Guarantees`].

mod backend;
mod claim;
mod clock;
mod driver;
mod error;
mod fence;
mod flag;
mod grant;
mod guarantees;
mod guard;
mod key;
mod lease;
mod lock;
mod locks;
mod options;
mod owner;
#[cfg(test)]
mod tests;
pub mod wait;

pub use backend::{Backend, Inspection, Release, Stop, Undone};
pub use claim::{Claim, ClaimId};
pub use clock::Moment;
pub use error::{Effect, Error, ErrorKind, Result};
pub use fence::{Fence, FencingToken};
pub use grant::{Grant, LossSignal, Renew, Renewal};
pub use guarantees::{Exclusion, Expiry, Fencing, Guarantees, NodeFailure, OwnerCheck, WakeUp};
pub use guard::{LockGuard, LossReason, Watch};
pub use key::LockKey;
pub use lease::Lease;
pub use lock::Lock;
pub use locks::Locks;
pub use options::Options;
pub use owner::Owner;
