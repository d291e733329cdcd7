//! Distributed locks kept in `ZooKeeper`: [`ZooKeeper`].
//!
//! ```no_run
//! # async fn example() -> lock_core::Result<()> {
//! use lock_core::Locks;
//! use lock_zookeeper::ZooKeeper;
//!
//! let locks = Locks::new(ZooKeeper::connect("zk1:2181,zk2:2181,zk3:2181").await?);
//! locks.lock("orders/42")?.run(async |guard| println!("token {:?}", guard.fencing_token())).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it guarantees
//!
//! No two holders before their deadlines, as long as a majority of the servers keeps its data: the servers agree on every
//! grant, and a deadline is never later than what the session has been proven to live. Waiters are served in the order in
//! which they came, and a release wakes one of them. Fencing tokens come from the servers' consensus (the node's czxid) and
//! never go back. Curator or kazoo may hold the same locks, as [`Naming`] says.
//!
//! # What it does not
//!
//! A holder that crashes keeps its lock until its session has ended: up to the session's timeout, however short its lease.
//! Without a majority of the servers nothing is granted, and what is held is lost at its deadline. A holder that is paused
//! past its deadline is late, as with every lease: let the resource check the token.
//!
//! # Leases
//!
//! The promise is half of the session's timeout, and no lease is longer: a renewed one is granted that much and kept alive;
//! a fixed one that asks for more is `InvalidInput`. The session is shared by all locks of a [`ZooKeeper`].

mod config;
mod error;
#[cfg(test)]
#[path = "../tests/zookeeper/hostile.rs"]
mod hostile;
mod line;
mod naming;
mod path;
mod place;
mod proof;
mod quiet;
mod session;
mod sessions;
mod unsettled;
mod zookeeper;

pub use config::Config;
pub use naming::Naming;
pub use zookeeper::ZooKeeper;
