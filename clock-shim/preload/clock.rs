//! The library that a lab preloads into its processes (ld.so(8), LD_PRELOAD): it moves their clocks.
//!
//! `build.rs` compiles it with rustc alone. It has no standard library, because std calls the very functions that are
//! overridden here. It allocates nothing and takes no lock: clock_gettime(2) may be called in a signal handler.
//!
//! Three kinds of functions are overridden: those that read a clock, those that wait until a time of a clock, and
//! syscall(2), by which the standard library of Rust waits. A wait for a *length* of time needs no help.

#![no_std]

mod kernel;
mod layout;
mod original;
mod time;
mod waits;

use core::ffi::{c_char, c_int, c_long, c_void};
use core::panic::PanicInfo;

use time::{REALTIME, Timespec};

#[link(name = "c")]
#[link(name = "dl")]
unsafe extern "C" {
    fn abort() -> !;
    fn _exit(code: c_int) -> !;
    fn write(file: c_int, bytes: *const u8, length: usize) -> isize;
}

/// What ld.so calls when it has loaded the library.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

extern "C" fn begin(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    waits::prepare();
    // SAFETY: libc hands its environment to the functions of `.init_array`.
    if let Err(says) = unsafe { time::map(environment) } {
        // A process whose clocks were to move and do not would give a wrong verdict.
        // SAFETY: the text is as long as it is.
        unsafe {
            write(2, says.as_ptr(), says.len());
            _exit(127)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: c_int, now: *mut Timespec) -> c_int {
    match kernel::clock_gettime(clock) {
        Ok(real) => {
            // SAFETY: the caller gives a timespec to write to.
            unsafe { now.write(real.plus(time::offset(clock))) };
            0
        }
        Err(error) => kernel::with_errno(error) as c_int,
    }
}

#[repr(C)]
struct Timeval {
    seconds: i64,
    microseconds: i64,
}

/// The time zone is no longer used by anybody (gettimeofday(2)), so it is left as it is.
#[unsafe(no_mangle)]
unsafe extern "C" fn gettimeofday(now: *mut Timeval, _zone: *mut c_void) -> c_int {
    if !now.is_null() {
        let wall = wall();
        // SAFETY: the caller gives a timeval to write to.
        unsafe { now.write(Timeval { seconds: wall.seconds, microseconds: wall.nanoseconds / 1000 }) };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn time(now: *mut i64) -> i64 {
    let seconds = wall().seconds;
    if !now.is_null() {
        // SAFETY: the caller gives a time_t to write to.
        unsafe { now.write(seconds) };
    }
    seconds
}

fn wall() -> Timespec {
    // The kernel has had this clock for ever.
    kernel::clock_gettime(REALTIME).unwrap_or(Timespec { seconds: 0, nanoseconds: 0 }).plus(time::offset(REALTIME))
}

/// syscall(2) takes as many arguments as the call needs. With the C calling convention of both processors, one that was not
/// given is read as whatever lies there, and the kernel does not look at it.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let mut arguments = [a, b, c, d, e, f];
    // SAFETY: the caller vouches for the arguments, and the time lives until the call has returned.
    unsafe {
        let until = waits::futex_deadline(number, &arguments);
        if let Some(until) = &until {
            arguments[3] = &raw const *until as c_long;
        }
        kernel::with_errno(kernel::call(number, arguments))
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: it may be called from everywhere.
    unsafe { abort() }
}
