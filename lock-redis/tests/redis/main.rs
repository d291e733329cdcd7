//! What a real server, a bad network and bad input do to the locks; one file per theme.

#![allow(clippy::unwrap_used, reason = "a test's helpers may panic, as the test may")]

mod access;
mod bounds;
mod cluster;
mod fencing;
mod ground;
mod input;
mod outages;
mod replicas;
mod replies;
mod runtimes;
mod scale;
mod secured;
mod sentinel;
mod server;
mod waiting;
mod wire;
