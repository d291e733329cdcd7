//! System calls, made by hand: this library overrides the functions of libc that would make them.

use core::arch::asm;
use core::ffi::{c_int, c_long};

use crate::time::Timespec;

#[cfg(target_arch = "x86_64")]
mod number {
    pub(crate) const READ: i64 = 0;
    pub(crate) const CLOSE: i64 = 3;
    pub(crate) const MMAP: i64 = 9;
    pub(crate) const FUTEX: i64 = 202;
    pub(crate) const CLOCK_GETTIME: i64 = 228;
    pub(crate) const OPENAT: i64 = 257;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub(crate) const OPENAT: i64 = 56;
    pub(crate) const CLOSE: i64 = 57;
    pub(crate) const READ: i64 = 63;
    pub(crate) const FUTEX: i64 = 98;
    pub(crate) const CLOCK_GETTIME: i64 = 113;
    pub(crate) const MMAP: i64 = 222;
}

pub(crate) use number::FUTEX;

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// Makes any system call. An error is a negative number of errno(3).
///
/// # Safety
///
/// What the call itself asks of its arguments.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn call(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    let answer;
    // SAFETY: the kernel changes rcx and r11 besides the answer, and memory only as the call says.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Makes any system call. An error is a negative number of errno(3).
///
/// # Safety
///
/// What the call itself asks of its arguments.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn call(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    let answer;
    // SAFETY: the kernel keeps all registers but x0, and changes memory only as the call says.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => answer,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    answer
}

/// The answer of a system call as libc gives it: -1 and errno for an error.
pub(crate) fn with_errno(answer: c_long) -> c_long {
    if (-4095..0).contains(&answer) {
        // SAFETY: libc gives the address of this thread's errno.
        unsafe { *__errno_location() = (-answer) as c_int };
        return -1;
    }
    answer
}

/// The real time of a clock, or a negative number of errno(3).
pub(crate) fn clock_gettime(clock: c_int) -> Result<Timespec, c_long> {
    let mut now = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: `now` is a timespec to write to.
    match unsafe { call(number::CLOCK_GETTIME, [clock.into(), &raw mut now as c_long, 0, 0, 0, 0]) } {
        0 => Ok(now),
        error => Err(error),
    }
}

/// Opens a file for reading. A negative answer is an error.
///
/// # Safety
///
/// `path` must end with a NUL.
pub(crate) unsafe fn open(path: *const u8) -> c_long {
    const AT_FDCWD: c_long = -100;
    const O_CLOEXEC: c_long = 0o2_000_000;
    // SAFETY: the caller vouches for the path.
    unsafe { call(number::OPENAT, [AT_FDCWD, path as c_long, O_CLOEXEC, 0, 0, 0]) }
}

/// Reads what fits. A negative answer is an error.
pub(crate) fn read(file: c_long, into: &mut [u8]) -> c_long {
    // SAFETY: the kernel writes into the slice alone.
    unsafe { call(number::READ, [file, into.as_mut_ptr() as c_long, into.len() as c_long, 0, 0, 0]) }
}

pub(crate) fn close(file: c_long) {
    // SAFETY: the callers close what they opened.
    unsafe { call(number::CLOSE, [file, 0, 0, 0, 0, 0]) };
}

/// Maps the first bytes of a file, to read them as others change them. A negative answer is an error.
pub(crate) fn map_shared(file: c_long, bytes: usize) -> c_long {
    const PROT_READ: c_long = 1;
    const MAP_SHARED: c_long = 1;
    // SAFETY: a new mapping touches no memory that is in use.
    unsafe { call(number::MMAP, [0, bytes as c_long, PROT_READ, MAP_SHARED, file, 0]) }
}
