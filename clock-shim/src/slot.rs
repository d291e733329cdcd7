use std::env;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

use crate::clocks::Shared;
use crate::layout;

/// What a process may be off by when it tells its time: it may have asked a coarse clock, and told no fraction of a second.
const COARSE: Duration = Duration::from_secs(2);

/// The clocks of one process.
///
/// A process that it starts has the same slot, unless it is given other variables.
#[derive(Clone, Debug)]
pub struct Slot {
    shared: Arc<Shared>,
    number: usize,
}

/// A clock that a process may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// CLOCK_REALTIME: since the beginning of 1970. It is `SystemTime` in Rust, and `TIME` in Redis.
    Wall,
    /// CLOCK_MONOTONIC, which does not count suspend: `Instant` in Rust on Linux.
    Monotonic,
    /// CLOCK_BOOTTIME, which does.
    Boottime,
    /// CLOCK_MONOTONIC_RAW, which has the common offset alone.
    Lab,
}

impl Slot {
    pub(crate) fn new(shared: Arc<Shared>, number: usize) -> Self {
        Self { shared, number }
    }

    /// The variables that put a process under the shim: give them to the process that is started, and to nobody else. What
    /// this process has in `LD_PRELOAD` is kept.
    ///
    /// They lead nowhere once all `Clocks` and slots of a lab are dropped.
    #[must_use]
    pub fn env(&self) -> [(&'static str, OsString); 3] {
        [
            (PRELOAD, before(self.shared.library(), env::var_os(PRELOAD))),
            (layout::FILE_VARIABLE, self.shared.file().into_os_string()),
            (layout::SLOT_VARIABLE, self.number.to_string().into()),
        ]
    }

    /// Lets the process's wall clock jump forward; its other clocks stay. It may run meanwhile, as a server does whose clock
    /// is set.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if all steps together pass 146 years.
    pub fn step_wall_forward(&self, by: Duration) -> io::Result<()> {
        self.shared.table.add(layout::wall_at(self.number), nanoseconds(by)?)
    }

    /// Lets the process's wall clock jump back; its other clocks stay.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if all steps together pass 146 years.
    pub fn step_wall_back(&self, by: Duration) -> io::Result<()> {
        self.shared.table.add(layout::wall_at(self.number), -nanoseconds(by)?)
    }

    /// Lets the process's CLOCK_MONOTONIC jump forward. There is no way back. Step only while the process is stopped, if it
    /// is a contender.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if all steps together pass 146 years.
    pub fn step_monotonic(&self, by: Duration) -> io::Result<()> {
        self.shared.table.add(layout::monotonic_at(self.number), nanoseconds(by)?)
    }

    /// Lets the process's CLOCK_BOOTTIME jump forward. There is no way back. Step only while the process is stopped, if it
    /// is a contender.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if all steps together pass 146 years.
    pub fn step_boottime(&self, by: Duration) -> io::Result<()> {
        self.shared.table.add(layout::boottime_at(self.number), nanoseconds(by)?)
    }

    /// What the process reads on a clock now.
    ///
    /// # Errors
    ///
    /// If the kernel has no such clock; Linux has had them all since 2.6.39.
    pub fn now(&self, clock: Clock) -> io::Result<Duration> {
        let own = match clock {
            Clock::Wall => self.shared.table.offset(layout::wall_at(self.number)),
            Clock::Monotonic => self.shared.table.offset(layout::monotonic_at(self.number)),
            Clock::Boottime => self.shared.table.offset(layout::boottime_at(self.number)),
            Clock::Lab => 0,
        };
        clock.ahead_by(self.shared.table.offset(layout::COMMON_AT).saturating_add(own))
    }

    /// Proves that the process in this slot is under the shim: asks it by `read` for the time of one of its clocks, and
    /// compares that with [`now`](Slot::now) before and after, give or take 2 s.
    ///
    /// A lab calls it for each kind of process that it starts, before the first verdict. Without the proof a server that the
    /// shim does not reach would look like a lock that survives every jump of the server's clock. A process that the shim
    /// does not reach is an hour behind at the least, unless its own offsets have made up for the common one.
    ///
    /// # Errors
    ///
    /// The error of `read`; else if the process told another time, with both times and what to look for.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::process::Command;
    /// use std::time::Duration;
    ///
    /// use lock_clock::{Clock, Clocks};
    ///
    /// let clocks = Clocks::start()?;
    /// let slot = clocks.slot()?;
    /// let read = |command: &mut Command| -> std::io::Result<Duration> {
    ///     let seconds = String::from_utf8(command.output()?.stdout).expect("date writes ASCII");
    ///     Ok(Duration::from_secs(seconds.trim().parse().expect("date writes a number")))
    /// };
    /// slot.prove(Clock::Wall, || read(Command::new("date").arg("+%s").envs(slot.env())))?;
    /// assert!(slot.prove(Clock::Wall, || read(Command::new("date").arg("+%s"))).is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn prove(&self, clock: Clock, read: impl FnOnce() -> io::Result<Duration>) -> io::Result<()> {
        let before = self.now(clock)?;
        let told = read()?;
        let after = self.now(clock)?;
        if (before.saturating_sub(COARSE)..=after.saturating_add(COARSE)).contains(&told) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "the clock shim does not reach the process in slot {}: its clock {clock:?} told {told:?}, and must tell \
             {before:?} to {after:?}. Was it started with the variables of this slot? Is it linked statically, or does it \
             ask the kernel without libc? Does the temporary folder forbid execution?",
            self.number
        )))
    }

    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Takes a common step off the process's CLOCK_MONOTONIC.
    pub(crate) fn hold_monotonic(&self, by: Duration) -> io::Result<()> {
        self.shared.table.add(layout::monotonic_at(self.number), -nanoseconds(by)?)
    }
}

const PRELOAD: &str = "LD_PRELOAD";

impl Clock {
    /// The real time of this clock, and so many nanoseconds.
    pub(crate) fn ahead_by(self, offset: i64) -> io::Result<Duration> {
        let id = match self {
            Self::Wall => ClockId::CLOCK_REALTIME,
            Self::Monotonic => ClockId::CLOCK_MONOTONIC,
            Self::Boottime => ClockId::CLOCK_BOOTTIME,
            Self::Lab => ClockId::CLOCK_MONOTONIC_RAW,
        };
        let real = clock_gettime(id)?.num_nanoseconds();
        // A clock that was set to a time before its beginning is shown as at its beginning.
        Ok(Duration::from_nanos(u64::try_from(real.saturating_add(offset)).unwrap_or(0)))
    }
}

/// A library and those that are preloaded anyway.
fn before(library: PathBuf, others: Option<OsString>) -> OsString {
    let mut all = library.into_os_string();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// A step as the table has it.
pub(crate) fn nanoseconds(by: Duration) -> io::Result<i64> {
    i64::try_from(by.as_nanos())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "no clock is moved by more than 146 years"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_are_preloaded_anyway_are_kept() {
        assert_eq!(before("/a.so".into(), None), "/a.so");
        assert_eq!(before("/a.so".into(), Some("".into())), "/a.so");
        assert_eq!(before("/a.so".into(), Some("/b.so:/c.so".into())), "/a.so:/b.so:/c.so");
    }
}
