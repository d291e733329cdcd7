//! The comparison of Hasp's lock strategies: how fast each is, and what breaks it.
//!
//! `lock-bench compare` runs every strategy through workloads and faults on private servers and holds the outcome against
//! what is written down for its kind, both ways: a weak strategy that survives what must break it is a failure too.
//! `lock-bench soak` makes random faults instead of chosen ones. `lock-bench bench` measures against the raw commands.
//!
//! To add a strategy, add an entry to [`Strategy::all`], and say in each scenario what it does to it; a workload is one file in
//! its folder, and a scenario one function in the file of its family.

mod bench;
mod cli;
mod compare;
mod guarantees;
mod lab;
mod matrix;
mod measure;
mod mutant;
mod progress;
mod raw;
mod report;
mod scenario;
mod soak;
mod stores;
mod strategy;
mod tell;
mod workload;

pub use cli::run;
pub use compare::{Agenda, Comparison, Effort, compare};
pub use progress::Progress;
pub use raw::{Floor, FloorKey, FloorKind};
pub use stores::{Store, Stores};
pub use strategy::{Connect, Kind, Seat, Strategy, Unknown};

/// Why a measurement or a scenario could not be made. It says nothing about a lock.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
