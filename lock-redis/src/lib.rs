//! Distributed locks kept in one Redis, alone, under Sentinel or in a cluster: [`Token`] and [`Reentrant`].
//!
//! ```no_run
//! # async fn example() -> lock_core::Result<()> {
//! use lock_core::Locks;
//! use lock_redis::Token;
//!
//! let locks = Locks::new(Token::connect("redis://127.0.0.1").await?);
//! locks.lock("orders/42")?.run(async |guard| println!("token {:?}", guard.fencing_token())).await?;
//! # Ok(())
//! # }
//! ```
//!
//! | | use it when |
//! | --- | --- |
//! | [`Token`] | you want a lock; it is the faster one |
//! | [`Reentrant`] | one owner must be able to take the lock again, or Redisson's `RLock` holds the same locks |
//!
//! # What it guarantees
//!
//! No two holders before their deadlines, as long as the server keeps its data and its clock does not jump. A request that is
//! repeated after a lost reply counts once. Fencing tokens grow with every grant, across restarts and FLUSHALL too, as long
//! as not both the data and the server's clock go back.
//!
//! # What it does not
//!
//! A server that loses its memory loses its locks: a restart without persistence, a failover to a replica that had not
//! got the last writes, eviction. The next comer is then granted a lock that another still believes to hold until its
//! next renewal. `maxmemory-policy noeviction` is required, and warned about at connect. Redis expires keys by its wall clock,
//! so a clock that jumps ends leases early or late.
//!
//! # Rights
//!
//! Redis 6.2 or newer, and a user who may run scripts. A user without rights on the channels still gets locks: waiters poll,
//! and [`Guarantees`](lock_core::Guarantees) say so.
//!
//! # Features
//!
//! `tls`: `rediss://` URLs, with rustls and the system's certificates.

mod address;
mod answer;
mod channel;
mod cluster;
mod config;
mod connection;
mod error;
mod evaluation;
mod extension;
mod keys;
mod lease;
mod links;
mod listing;
mod pinned;
mod probe;
mod reentrant;
mod replication;
mod script;
mod sentinel;
mod subscriptions;
mod token;
mod transport;
mod watch;

pub use config::Config;
pub use connection::Connection;
pub use lease::Ttl;
pub use reentrant::{Reentrant, ReentrantOptions};
pub use replication::MinReplicas;
pub use script::{Call, Script};
pub use token::{Token, TokenOptions, Unlock};
