//! What real nodes, a bad network and bad input do to the lock; one file per theme.

#![allow(clippy::unwrap_used, reason = "a test's helpers may panic, as the test may")]

mod extension;
mod fencing;
mod ground;
mod input;
mod memory;
mod outages;
mod release;
mod storm;
mod votes;
