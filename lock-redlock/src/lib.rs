//! Distributed locks kept by a majority of independent Redis nodes: [`Redlock`].
//!
//! ```no_run
//! # async fn example() -> lock_core::Result<()> {
//! use lock_core::Locks;
//! use lock_redlock::Redlock;
//!
//! let locks = Locks::new(Redlock::connect(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]).await?);
//! locks.lock("orders/42")?.run(async |guard| println!("until {:?}", guard.deadline())).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it guarantees
//!
//! It works while a majority of the nodes answers, and a silent node costs a bounded time. No two holders before their
//! deadlines, as long as no node forgets what it has granted and no node's clock jumps.
//!
//! # What it does not
//!
//! It is no consensus. A node that restarts empty within a lease, or whose clock jumps, can give its vote twice, and then two
//! may hold the lock; [`Redlock`] tells how, and what the debate about it says. Where it must really hold, take `lock-etcd`
//! or `lock-zookeeper`.
//!
//! # Features
//!
//! `tls`: `rediss://` URLs, with rustls and the system's certificates.

mod ask;
mod config;
mod entry;
mod error;
mod lease;
mod mint;
mod node;
mod redlock;
mod round;
mod scripts;
mod sight;
#[cfg(test)]
mod simulation;
mod stragglers;

pub use config::RedlockOptions;
pub use redlock::Redlock;
