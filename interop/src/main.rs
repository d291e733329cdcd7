//! Real foreign clients and ours hold the same locks, each in a process of its own, on real private servers.
//!
//! `./x interop` fetches the foreign clients, builds their drivers and runs this program; it takes the arguments of a test
//! binary. Started as `lock-interop drive STRATEGY ADDRESS LEASE_MS` it is our own driver. `README.md` describes the lines
//! that all drivers speak.

#![allow(clippy::unwrap_used, reason = "the whole program is a test")]

mod client;
mod driver;
mod ground;
mod ours;
mod trials;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use crate::client::CLIENTS;
use crate::ground::Ground;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [drive, strategy, address, lease] = arguments.as_slice()
        && drive == "drive"
    {
        ours::drive(strategy, address, lease.parse().expect("a lease in ms"));
        return ExitCode::SUCCESS;
    }

    // The servers go when the last trial has dropped the ground.
    let ground = Arc::new(Ground::default());
    let trials = CLIENTS.iter().flat_map(|client| {
        let ground = Arc::clone(&ground);
        trials::of(client).into_iter().map(move |(name, trial)| {
            let ground = Arc::clone(&ground);
            Trial::test(format!("{}::{name}", client.name), move || {
                trial(&ground, client);
                Ok(())
            })
        })
    });
    let trials = trials.collect();
    drop(ground);
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
