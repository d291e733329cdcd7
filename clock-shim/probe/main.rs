//! A process whose clocks are moved. It takes one command per line and answers each by one line.
//!
//! `read` answers the nanoseconds of CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME and CLOCK_MONOTONIC_RAW, then those of
//! `SystemTime` and those since the first `Instant`. Every other command is the name of a wait of 200 ms and answers how many
//! milliseconds it lasted by `Instant`.

#![allow(unsafe_code, reason = "it calls functions of libc that nobody wraps")]

mod wait;

use std::io::{self, BufRead as _, Write as _};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeValLike as _;
use nix::time::{ClockId, clock_gettime};

fn main() -> io::Result<()> {
    let first = Instant::now();
    for command in io::stdin().lock().lines() {
        let answer = match &*command? {
            "read" => read(first)?,
            name => {
                let wait = wait::named(name).ok_or_else(|| io::Error::other(format!("there is no wait `{name}`")))?;
                let begun = Instant::now();
                wait()?;
                begun.elapsed().as_millis().to_string()
            }
        };
        let mut output = io::stdout().lock();
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

fn read(first: Instant) -> io::Result<String> {
    let clock = |id| clock_gettime(id).map(|now| now.num_nanoseconds());
    Ok(format!(
        "{} {} {} {} {} {}",
        clock(ClockId::CLOCK_REALTIME)?,
        clock(ClockId::CLOCK_MONOTONIC)?,
        clock(ClockId::CLOCK_BOOTTIME)?,
        clock(ClockId::CLOCK_MONOTONIC_RAW)?,
        SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?.as_nanos(),
        first.elapsed().as_nanos(),
    ))
}
