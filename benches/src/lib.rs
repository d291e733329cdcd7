//! The comparison of Hasp's lock strategies: how fast each is, and what breaks it.
//!
//! `lock-bench compare` runs every strategy through workloads and faults on private servers and holds the outcome against
//! what the strategy's [`Guarantees`](lock_core::Guarantees) say, both ways: a weak strategy that survives what must break
//! it is a failure too. `lock-bench bench` measures against the raw commands.
//!
//! To add a strategy, add an entry to [`Strategy::all`]; a workload or a scenario is one file in its folder.

mod bench;
mod cli;
mod compare;
mod measure;
mod progress;
mod raw;
mod report;
mod scenario;
mod stores;
mod strategy;
mod workload;

pub use cli::run;
pub use compare::{Comparison, Effort, Only, compare};
pub use progress::Progress;
pub use raw::{Floor, FloorKey, FloorKind};
pub use stores::Stores;
pub use strategy::{Connect, Seat, Strategy, Unknown};

/// Why a measurement or a scenario could not be made. It says nothing about a lock.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
