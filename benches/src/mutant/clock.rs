//! The clock by which a holder counts.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::{env, io};

use futures_util::FutureExt;
use lock_core::{Backend, Moment, Result};

use super::Mutant;
use super::flawed::{failed, ours};
use crate::Strategy;
use crate::strategy::{Kind, Seat};

#[allow(dead_code, reason = "of the table's layout only the place of one offset is needed")]
#[path = "../../../clock-shim/preload/layout.rs"]
mod layout;

pub(super) const ALL: &[Mutant] = &[NO_SUSPEND];

/// `Instant` in Rust on Linux is CLOCK_MONOTONIC, which does not count suspend (rust-lang/rust#87906).
const NO_SUSPEND: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-no-suspend",
        "",
        "as redis-token, but the holder's clock does not count suspend",
        Kind::Token,
        |seat| no_suspend(seat).boxed(),
    ),
    flaw: "who wakes up from a suspend goes on as if no time had passed",
    caught_by: &["S08"],
};

async fn no_suspend(seat: &Seat) -> Result<Arc<dyn Backend>> {
    stop_counting_suspend().map_err(|error| failed("connect", error))?;
    ours(Kind::Token, seat).await
}

/// Makes a [`Moment`] of this process CLOCK_MONOTONIC and a constant.
///
/// It is that clock plus the time for which the machine has slept, and that time never falls. So for one reading
/// CLOCK_BOOTTIME is a year ahead: whatever the machine sleeps from then on is less.
fn stop_counting_suspend() -> io::Result<()> {
    const YEAR_NANOS: i64 = 365 * 24 * 60 * 60 * 1_000_000_000;

    let slot = env::var(layout::SLOT_VARIABLE).ok().and_then(|slot| slot.parse().ok());
    let (Some(file), Some(slot)) = (env::var_os(layout::FILE_VARIABLE), slot) else {
        return Err(io::Error::other("this mutant lives only under the lab's clocks"));
    };
    let (table, at) = (OpenOptions::new().write(true).open(file)?, 8 * layout::boottime_at(slot) as u64);
    table.write_all_at(&YEAR_NANOS.to_ne_bytes(), at)?;
    let _far_ahead = Moment::now();
    table.write_all_at(&0_i64.to_ne_bytes(), at)
}
