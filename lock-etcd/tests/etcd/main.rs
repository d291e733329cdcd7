//! What the suite cannot see: faults of leases, watches and members, foreign clients, and what goes over the wire.

#![allow(clippy::unwrap_used, reason = "the functions below are for tests only")]

mod abandon;
mod access;
mod foreign;
mod ground;
mod leases;
mod members;
mod names;
mod waiting;
