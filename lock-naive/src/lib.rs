//! The locks people write first, kept in Redis as published, wrong where the originals are wrong.
//!
//! They are here to be compared with and learnt from: each type states its algorithm, the source of it, what breaks it and
//! the scenario that shows it. For work that matters take `lock-redis`.
//!
//! | type | acquire | release | breaks when |
//! | --- | --- | --- | --- |
//! | [`SetnxExpire`] | SETNX, then EXPIRE | GET, compare, DEL | the holder dies between the two commands: locked for ever |
//! | [`GetSet`] | SETNX of an expiry stamp; GETSET of a stale one | GET, compare, DEL | a client's clock is fast, or a loser writes last |
//! | [`BlindDelete`] | SET NX PX | DEL | the holder is late: it frees another's lock |
//!
//! ```no_run
//! # async fn example() -> lock_core::Result<()> {
//! use lock_core::Locks;
//! use lock_naive::BlindDelete;
//!
//! let locks = Locks::new(BlindDelete::connect("redis://127.0.0.1").await?);
//! let guard = locks.lock("orders/42")?.acquire().await?;
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What they guarantee
//!
//! What [`Guarantees`](lock_core::Guarantees) of each says, tested both ways on a real server: also that it breaks. All
//! three exclude by best effort only and have no fencing token. What is not the algorithm's own fault is done properly: every
//! request has a limit, an error is never folded into "not locked", and an undo compares before it deletes.
//!
//! # What they do not
//!
//! None of them is re-entrant or fair, and none finds its own grant again after a lost reply: a retry locks itself out
//! until the entry ends. A waiter asks every 100 ms.

mod blind_delete;
mod config;
mod connection;
mod error;
mod getset;
mod poll;
mod setnx_expire;
mod ttl;

pub use blind_delete::BlindDelete;
pub use config::Config;
pub use getset::GetSet;
pub use setnx_expire::SetnxExpire;
