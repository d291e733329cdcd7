//! A timespec, and how far each clock of this process is ahead of the real one.

use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicUsize, Ordering::Relaxed};

use crate::{kernel, layout};

pub(crate) const REALTIME: c_int = 0;
pub(crate) const MONOTONIC: c_int = 1;
const MONOTONIC_RAW: c_int = 4;
const REALTIME_COARSE: c_int = 5;
const MONOTONIC_COARSE: c_int = 6;
const BOOTTIME: c_int = 7;
const REALTIME_ALARM: c_int = 8;
const BOOTTIME_ALARM: c_int = 9;
const TAI: c_int = 11;

const SECOND: i64 = 1_000_000_000;

/// The table, once it is mapped. It is never unmapped.
static TABLE: AtomicPtr<AtomicI64> = AtomicPtr::new(ptr::null_mut());
static SLOT: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Timespec {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: i64,
}

impl Timespec {
    /// This time, later by so many nanoseconds.
    pub(crate) fn plus(self, offset: i64) -> Self {
        let nanoseconds = self.nanoseconds + offset.rem_euclid(SECOND);
        let seconds = self.seconds.saturating_add(offset.div_euclid(SECOND));
        if nanoseconds < SECOND {
            return Self { seconds, nanoseconds };
        }
        Self { seconds: seconds.saturating_add(1), nanoseconds: nanoseconds - SECOND }
    }

    /// What this process calls the real time of a clock, `None` where the kernel refuses this time.
    ///
    /// A time before the clock's beginning is the beginning, because the kernel takes no negative one; it is past as well.
    pub(crate) fn to_real(self, clock: c_int) -> Option<Self> {
        if !(0..SECOND).contains(&self.nanoseconds) {
            return None;
        }
        let real = self.plus(offset(clock).saturating_neg());
        Some(if real.seconds < 0 { Self { seconds: 0, nanoseconds: 0 } } else { real })
    }
}

/// How far this process's clock is ahead of the real one, in nanoseconds. The clocks of processor time are never moved.
pub(crate) fn offset(clock: c_int) -> i64 {
    let table = TABLE.load(Relaxed);
    if table.is_null() {
        return 0;
    }
    let slot = SLOT.load(Relaxed);
    // SAFETY: the table has all words of every slot, and `map` has checked the slot.
    let word = |at: usize| unsafe { (*table.add(at)).load(Relaxed) };
    let own = match clock {
        REALTIME | REALTIME_COARSE | REALTIME_ALARM | TAI => word(layout::wall_at(slot)),
        MONOTONIC | MONOTONIC_COARSE => word(layout::monotonic_at(slot)),
        BOOTTIME | BOOTTIME_ALARM => word(layout::boottime_at(slot)),
        // The lab clock.
        MONOTONIC_RAW => 0,
        _ => return 0,
    };
    word(layout::COMMON_AT).saturating_add(own)
}

/// Maps the table that the environment names. Without both variables nothing is mapped, and every clock stays as it is.
///
/// # Errors
///
/// A sentence, if the variables lead to no table.
///
/// # Safety
///
/// `environment` must be one as libc has it: pointers to texts, and a null pointer at the end.
pub(crate) unsafe fn map(environment: *const *const c_char) -> Result<(), &'static str> {
    // SAFETY: the caller vouches for the environment.
    let variables =
        unsafe { (variable(environment, layout::FILE_VARIABLE), variable(environment, layout::SLOT_VARIABLE)) };
    let (Some(path), Some(slot)) = variables else { return Ok(()) };
    let slot = slot.to_str().ok().and_then(|slot| slot.parse().ok()).filter(|slot| *slot < layout::SLOTS);
    let slot = slot.ok_or("hasp clock shim: HASP_CLOCK_SLOT names no slot\n")?;
    // SAFETY: the path ends with a NUL.
    let file = unsafe { kernel::open(path.as_ptr().cast()) };
    if file < 0 {
        return Err("hasp clock shim: the file HASP_CLOCK_FILE cannot be opened\n");
    }
    let table = kernel::map_shared(file, layout::BYTES);
    kernel::close(file);
    if table < 0 {
        return Err("hasp clock shim: the file HASP_CLOCK_FILE cannot be mapped\n");
    }
    let table = table as *mut AtomicI64;
    // SAFETY: a mapping begins with a page, and is never changed but by atomic stores. A shorter file than ours ends the
    // process with a SIGBUS, which is as loud as it should be.
    if unsafe { (*table.add(layout::MAGIC_AT)).load(Relaxed) } != layout::MAGIC {
        return Err("hasp clock shim: the file HASP_CLOCK_FILE is no table of clocks\n");
    }
    SLOT.store(slot, Relaxed);
    TABLE.store(table, Relaxed);
    Ok(())
}

/// The value of a variable.
///
/// # Safety
///
/// As for [`map`].
unsafe fn variable(mut environment: *const *const c_char, name: &str) -> Option<&'static CStr> {
    // SAFETY: we stop at the null pointer, and libc keeps the texts of the environment that it began with.
    while let Some(entry) = unsafe { environment.as_ref() }.filter(|entry| !entry.is_null()) {
        let entry = unsafe { CStr::from_ptr(*entry) };
        if let Some(value) = entry.to_bytes_with_nul().strip_prefix(name.as_bytes())
            && let Some(value) = value.strip_prefix(b"=")
        {
            return CStr::from_bytes_with_nul(value).ok();
        }
        environment = unsafe { environment.add(1) };
    }
    None
}
