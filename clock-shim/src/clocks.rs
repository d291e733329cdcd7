use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::layout;
use crate::slot::{Clock, Slot, nanoseconds};
use crate::table::Table;

/// How far every clock is ahead from the beginning.
const HEAD_START: Duration = Duration::from_secs(3600);

/// The preloaded library. It goes into the lab's own folder, so that a run survives a `cargo clean`.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libhasp_clock.so"));

/// The clocks of all processes of a lab.
///
/// From the beginning the common offset is one hour: a process that the shim does not reach is an hour behind, whichever
/// clock it is asked for, and [`Slot::prove`] sees that. A wait that the shim forgot to convert lasts an hour, not unnoticed
/// milliseconds.
///
/// The offsets are in a temporary folder, which goes with the last of this value and its slots. (When this process is
/// killed the folder stays behind, with the prefix `hasp-clock-`.) Two values know nothing of each other.
///
/// The [rules of a sound step](crate#rules-of-a-sound-step) say when to call `step` and `suspend`.
#[derive(Debug)]
pub struct Clocks {
    shared: Arc<Shared>,
    slots_given: AtomicUsize,
}

/// What `Clocks` and every slot of it hold.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) table: Table,
    folder: PathBuf,
    /// The same folder, unless somebody else removes it.
    _own: Option<TempDir>,
}

impl Shared {
    pub(crate) fn library(&self) -> PathBuf {
        self.folder.join("libhasp_clock.so")
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("clocks")
    }
}

impl Clocks {
    /// Makes the file of offsets and puts the library beside it.
    ///
    /// # Errors
    ///
    /// If the operating system refuses; `InvalidInput` if the path of the temporary folder has a space or a colon, which end
    /// a path in `LD_PRELOAD`.
    pub fn start() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("hasp-clock-").tempdir()?;
        Self::start_with(folder.path().to_owned(), Some(folder))
    }

    /// As [`start`](Clocks::start), in a folder that is somebody else's to remove, when the last process under the shim has
    /// ended.
    ///
    /// # Errors
    ///
    /// As for [`start`](Clocks::start); `AlreadyExists` if there are clocks in the folder.
    pub fn start_in(folder: &Path) -> io::Result<Self> {
        Self::start_with(folder.to_owned(), None)
    }

    fn start_with(folder: PathBuf, own: Option<TempDir>) -> io::Result<Self> {
        if folder.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
            let says = format!("LD_PRELOAD takes no path with a space or a colon: {}", folder.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, says));
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(folder.join("clocks"))?;
        let table = Table::in_file(&file)?;
        table.add(layout::COMMON_AT, nanoseconds(HEAD_START)?)?;
        let shared = Shared { table, folder, _own: own };
        fs::write(shared.library(), LIBRARY)?;
        Ok(Self { shared: Arc::new(shared), slots_given: AtomicUsize::new(0) })
    }

    /// A slot for one more process, whose own offsets are zero. Slots are not used again: a process may outlive its
    /// [`Slot`].
    ///
    /// # Errors
    ///
    /// After 16,383 of them.
    pub fn slot(&self) -> io::Result<Slot> {
        let number = self.slots_given.fetch_add(1, Ordering::Relaxed);
        if number >= layout::SLOTS {
            // Else the count could come round, in the very long run.
            self.slots_given.fetch_sub(1, Ordering::Relaxed);
            return Err(io::Error::other(format!("all {} slots are given", layout::SLOTS)));
        }
        Ok(Slot::new(Arc::clone(&self.shared), number))
    }

    /// Lets time pass for everybody at once: every clock of every process steps forward, and the lab clock with them. It is
    /// how to reach the end of a lease without waiting for it.
    ///
    /// It is one store, so no two clocks disagree meanwhile. Step only while every contender is stopped.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if all steps together pass 146 years.
    pub fn step(&self, by: Duration) -> io::Result<()> {
        self.shared.table.add(layout::COMMON_AT, nanoseconds(by)?)
    }

    /// Suspends the machine of one process for a while, which takes no real time: everybody's clocks step forward, but its
    /// CLOCK_MONOTONIC stays where it is, because that clock does not count suspend (its BOOTTIME and its wall clock do).
    ///
    /// The process must be stopped, as it is in a suspended machine; two stores are made, and between them a process that
    /// runs could see its clock go backwards. Every other contender must be stopped too, as for [`step`](Clocks::step).
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the slot belongs to other `Clocks`, or if all steps together pass 146 years.
    pub fn suspend(&self, slot: &Slot, by: Duration) -> io::Result<()> {
        if !slot.is_of(&self.shared) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "this slot belongs to other clocks"));
        }
        self.step(by)?;
        slot.hold_monotonic(by)
    }

    /// The lab clock, CLOCK_MONOTONIC_RAW with the common offset, which every process under the shim reads as its
    /// CLOCK_MONOTONIC_RAW. Its beginning has no meaning.
    ///
    /// # Errors
    ///
    /// If the kernel has no such clock; it has had it since Linux 2.6.28.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use lock_clock::Clocks;
    ///
    /// let clocks = Clocks::start()?;
    /// let before = clocks.lab_now()?;
    /// clocks.step(Duration::from_secs(11))?;
    /// assert!(clocks.lab_now()? - before >= Duration::from_secs(11));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn lab_now(&self) -> io::Result<Duration> {
        Clock::Lab.ahead_by(self.shared.table.offset(layout::COMMON_AT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_goes_with_the_last_that_needs_it() {
        let clocks = Clocks::start().unwrap();
        let folder = clocks.shared.folder.clone();
        let slot = clocks.slot().unwrap();
        drop(clocks);
        assert!(folder.join("libhasp_clock.so").is_file() && folder.join("clocks").is_file());
        drop(slot);
        assert!(!folder.exists());
    }

    #[test]
    fn a_clock_that_would_be_moved_too_far_stays() {
        const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
        let clocks = Clocks::start().unwrap();
        let slot = clocks.slot().unwrap();
        clocks.step(CENTURY).unwrap();
        slot.step_wall_back(CENTURY).unwrap();
        let (lab, wall) = (clocks.lab_now().unwrap(), slot.now(Clock::Wall).unwrap());
        for refused in [
            clocks.step(CENTURY),
            clocks.step(Duration::MAX),
            clocks.suspend(&slot, CENTURY),
            slot.step_wall_back(CENTURY),
        ] {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        assert!(clocks.lab_now().unwrap() - lab < Duration::from_secs(60));
        assert!(slot.now(Clock::Wall).unwrap() - wall < Duration::from_secs(60));
    }

    #[test]
    fn slots_end_with_an_error() {
        let clocks = Clocks::start().unwrap();
        clocks.slots_given.store(layout::SLOTS - 1, Ordering::Relaxed);
        let last = clocks.slot().unwrap();
        last.step_boottime(HEAD_START).unwrap();
        assert!(clocks.slot().is_err());
        assert!(clocks.slot().is_err());
    }
}
