//! Distributed locks kept in etcd: [`Etcd`].
//!
//! ```no_run
//! # async fn example() -> lock_core::Result<()> {
//! use lock_core::Locks;
//! use lock_etcd::Etcd;
//!
//! let locks = Locks::new(Etcd::connect(["http://127.0.0.1:2379"])?);
//! locks.lock("orders/42")?.run(async |guard| println!("token {:?}", guard.fencing_token())).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it guarantees
//!
//! No two holders before their deadlines, as long as a majority of the members keeps its data. First come, first served; a
//! release wakes the next waiter and nobody else. The fencing token is the create revision of the holder's key, which the
//! cluster's consensus orders. A member that fails loses no lock. A request that is repeated after a lost reply counts once.
//! Go's `concurrency.Mutex` and `etcdctl lock` exclude these locks and are excluded by them, under the same prefix.
//!
//! # What it does not
//!
//! A cluster that is restored from a snapshot has its old revisions again, and its old leases. An expired lease ends when the
//! leader says so, by the leader's clock: it may be later than the ttl, after an election above all, and it is never earlier.
//! Without a majority nothing is granted, renewed or released.
//!
//! # Building it
//!
//! The client crate compiles etcd's protocol files, which needs `protoc` and its own `.proto` files (Debian:
//! `protobuf-compiler` and `libprotobuf-dev`).
//!
//! # Features
//!
//! `tls`: `https://` endpoints, with rustls, ring and the system's certificates.

mod config;
mod endpoints;
mod error;
mod etcd;
mod keys;
mod lease;
mod leases;
mod listing;
mod places;
mod queue;
mod renewal;
mod turn;

pub use config::{Config, Names};
pub use etcd::Etcd;
