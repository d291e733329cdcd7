//! For whoever writes a lock backend: conformance suite, private servers, faults, history and its checkers.

pub mod fault;
mod port;
mod process;
mod redis;
mod resp;
pub mod suite;

pub use self::redis::{Monitor, Monitored, RedisServer, RedisServerBuilder};
pub use process::Process;
