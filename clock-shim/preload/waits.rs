//! Waits until a time. The caller names it by its own clock and the kernel compares it with the real one, so it is converted
//! on the way.
//!
//! Without this a process whose clock is 3 s ahead would wait 3.2 s where it meant 200 ms. The offset is that of the moment
//! when the wait begins: a step does not shorten a wait that is under way.

use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use crate::kernel;
use crate::original::Original;
use crate::time::{MONOTONIC, REALTIME, Timespec};

static CLOCK_NANOSLEEP: Original = Original::named(c"clock_nanosleep");
static COND_TIMEDWAIT: Original = Original::named(c"pthread_cond_timedwait");
static COND_CLOCKWAIT: Original = Original::named(c"pthread_cond_clockwait");
static MUTEX_TIMEDLOCK: Original = Original::named(c"pthread_mutex_timedlock");
static MUTEX_CLOCKLOCK: Original = Original::named(c"pthread_mutex_clocklock");
static RWLOCK_TIMEDRDLOCK: Original = Original::named(c"pthread_rwlock_timedrdlock");
static RWLOCK_CLOCKRDLOCK: Original = Original::named(c"pthread_rwlock_clockrdlock");
static RWLOCK_TIMEDWRLOCK: Original = Original::named(c"pthread_rwlock_timedwrlock");
static RWLOCK_CLOCKWRLOCK: Original = Original::named(c"pthread_rwlock_clockwrlock");
static SEM_TIMEDWAIT: Original = Original::named(c"sem_timedwait");
static SEM_CLOCKWAIT: Original = Original::named(c"sem_clockwait");
static TIMERFD_SETTIME: Original = Original::named(c"timerfd_settime");

/// Does beforehand what a signal handler must not do.
pub(crate) fn prepare() {
    let originals = [
        &CLOCK_NANOSLEEP,
        &COND_TIMEDWAIT,
        &COND_CLOCKWAIT,
        &MUTEX_TIMEDLOCK,
        &MUTEX_CLOCKLOCK,
        &RWLOCK_TIMEDRDLOCK,
        &RWLOCK_CLOCKRDLOCK,
        &RWLOCK_TIMEDWRLOCK,
        &RWLOCK_CLOCKWRLOCK,
        &SEM_TIMEDWAIT,
        &SEM_CLOCKWAIT,
        &TIMERFD_SETTIME,
    ];
    for original in originals {
        original.find();
    }
    find_clock_of_conditions();
}

/// A time to wait for, as the kernel is to see it.
enum Deadline {
    Real(Timespec),
    /// None, or one that libc is to refuse.
    AsGiven(*const Timespec),
}

impl Deadline {
    /// # Safety
    ///
    /// `until` must be null or a timespec.
    unsafe fn on(clock: c_int, until: *const Timespec) -> Self {
        // SAFETY: as above.
        let real = unsafe { until.as_ref() }.and_then(|until| until.to_real(clock));
        real.map_or(Self::AsGiven(until), Self::Real)
    }

    fn address(&self) -> usize {
        match self {
            Self::Real(real) => &raw const *real as usize,
            Self::AsGiven(until) => *until as usize,
        }
    }
}

// SAFETY of all that follow: they hand on what the caller gave, to the function that the caller meant.

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(clock: c_int, flags: c_int, until: *const Timespec, rest: *mut c_void) -> c_int {
    const TIMER_ABSTIME: c_int = 1;
    let until =
        if flags & TIMER_ABSTIME == 0 { Deadline::AsGiven(until) } else { unsafe { Deadline::on(clock, until) } };
    unsafe { CLOCK_NANOSLEEP.call([clock as usize, flags as usize, until.address(), rest as usize]) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_cond_timedwait(cond: *mut c_void, mutex: *mut c_void, until: *const Timespec) -> c_int {
    let until = unsafe { Deadline::on(clock_of_condition(cond), until) };
    unsafe { COND_TIMEDWAIT.call([cond as usize, mutex as usize, until.address(), 0]) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_cond_clockwait(
    cond: *mut c_void,
    mutex: *mut c_void,
    clock: c_int,
    until: *const Timespec,
) -> c_int {
    let until = unsafe { Deadline::on(clock, until) };
    unsafe { COND_CLOCKWAIT.call([cond as usize, mutex as usize, clock as usize, until.address()]) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_mutex_timedlock(mutex: *mut c_void, until: *const Timespec) -> c_int {
    unsafe { timed(&MUTEX_TIMEDLOCK, mutex, until) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_mutex_clocklock(mutex: *mut c_void, clock: c_int, until: *const Timespec) -> c_int {
    unsafe { clocked(&MUTEX_CLOCKLOCK, mutex, clock, until) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_timedrdlock(lock: *mut c_void, until: *const Timespec) -> c_int {
    unsafe { timed(&RWLOCK_TIMEDRDLOCK, lock, until) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_clockrdlock(lock: *mut c_void, clock: c_int, until: *const Timespec) -> c_int {
    unsafe { clocked(&RWLOCK_CLOCKRDLOCK, lock, clock, until) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_timedwrlock(lock: *mut c_void, until: *const Timespec) -> c_int {
    unsafe { timed(&RWLOCK_TIMEDWRLOCK, lock, until) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_clockwrlock(lock: *mut c_void, clock: c_int, until: *const Timespec) -> c_int {
    unsafe { clocked(&RWLOCK_CLOCKWRLOCK, lock, clock, until) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sem_timedwait(semaphore: *mut c_void, until: *const Timespec) -> c_int {
    unsafe { timed(&SEM_TIMEDWAIT, semaphore, until) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sem_clockwait(semaphore: *mut c_void, clock: c_int, until: *const Timespec) -> c_int {
    unsafe { clocked(&SEM_CLOCKWAIT, semaphore, clock, until) }
}

/// Waits for `what` until a time of REALTIME.
unsafe fn timed(original: &Original, what: *mut c_void, until: *const Timespec) -> c_int {
    unsafe { original.call([what as usize, Deadline::on(REALTIME, until).address(), 0, 0]) }
}

/// Waits for `what` until a time of a clock.
unsafe fn clocked(original: &Original, what: *mut c_void, clock: c_int, until: *const Timespec) -> c_int {
    unsafe { original.call([what as usize, clock as usize, Deadline::on(clock, until).address(), 0]) }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Itimerspec {
    interval: Timespec,
    value: Timespec,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn timerfd_settime(file: c_int, flags: c_int, new: *const Itimerspec, old: *mut c_void) -> c_int {
    const TFD_TIMER_ABSTIME: c_int = 1;
    let mut converted = None;
    if flags & TFD_TIMER_ABSTIME != 0 {
        let real = |timer: Itimerspec| {
            // Zero disarms the timer, and is no time.
            let disarms = timer.value.seconds == 0 && timer.value.nanoseconds == 0;
            let mut value = timer.value.to_real(clock_of_timer(file)?).filter(|_| !disarms)?;
            if value.seconds == 0 && value.nanoseconds == 0 {
                value.nanoseconds = 1;
            }
            Some(Itimerspec { value, ..timer })
        };
        converted = unsafe { new.as_ref() }.copied().and_then(real);
    }
    let new = converted.as_ref().map_or(new, |converted| &raw const *converted);
    unsafe { TIMERFD_SETTIME.call([file as usize, flags as usize, new as usize, old as usize]) }
}

/// The time until which a call of futex(2) waits, if it is one that waits until a time.
pub(crate) unsafe fn futex_deadline(number: c_long, arguments: &[c_long; 6]) -> Option<Timespec> {
    const FUTEX_WAIT_BITSET: c_int = 9;
    const FUTEX_PRIVATE_FLAG: c_int = 128;
    const FUTEX_CLOCK_REALTIME: c_int = 256;
    let operation = arguments[1] as c_int;
    if number != kernel::FUTEX || operation & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME) != FUTEX_WAIT_BITSET {
        return None;
    }
    let clock = if operation & FUTEX_CLOCK_REALTIME == 0 { MONOTONIC } else { REALTIME };
    unsafe { (arguments[3] as *const Timespec).as_ref() }?.to_real(clock)
}

/// The clock of a timer, which the kernel tells in proc(5); it is right for a copy of the file descriptor too.
fn clock_of_timer(file: c_int) -> Option<c_int> {
    const PREFIX: &[u8] = b"/proc/self/fdinfo/";
    let mut path = [0; 32];
    let mut end = PREFIX.len();
    path.get_mut(..end)?.copy_from_slice(PREFIX);
    let mut power = 1_000_000_000;
    while power > 0 {
        if file >= power || power == 1 {
            *path.get_mut(end)? = b'0' + (file / power % 10) as u8;
            end += 1;
        }
        power /= 10;
    }
    let mut info = [0; 512];
    // SAFETY: the path is shorter than its room, whose rest is zero.
    let source = unsafe { kernel::open(path.as_ptr()) };
    if source < 0 {
        return None;
    }
    let length = kernel::read(source, &mut info);
    kernel::close(source);
    let info = info.get(..usize::try_from(length).ok()?)?;
    let line = info.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"clockid: "))?;
    str::from_utf8(line).ok()?.parse().ok()
}

/// Where a condition variable keeps the clock it was made for: a word of 32 bits and one bit of it. No bit is REALTIME.
static CLOCK_WORD: AtomicUsize = AtomicUsize::new(0);
static CLOCK_BIT: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn pthread_cond_init(cond: *mut c_void, attributes: *const c_void) -> c_int;
    fn pthread_condattr_init(attributes: *mut c_void) -> c_int;
    fn pthread_condattr_setclock(attributes: *mut c_void, clock: c_int) -> c_int;
}

/// Makes two condition variables that differ in their clock alone, and looks at how they differ: libc does not tell the
/// clock of one, and has changed the layout before.
fn find_clock_of_conditions() {
    // Twice and more what they need, and aligned for them.
    let (mut attributes, mut wall, mut monotonic) = ([0_u64; 16], [0_u64; 16], [0_u64; 16]);
    unsafe {
        pthread_condattr_init(attributes.as_mut_ptr().cast());
        pthread_cond_init(wall.as_mut_ptr().cast(), attributes.as_ptr().cast());
        pthread_condattr_setclock(attributes.as_mut_ptr().cast(), MONOTONIC);
        pthread_cond_init(monotonic.as_mut_ptr().cast(), attributes.as_ptr().cast());
    }
    let words = |cond: &[u64; 16]| -> [u32; 32] { unsafe { core::mem::transmute(*cond) } };
    let mut bits = words(&wall).into_iter().zip(words(&monotonic)).map(|(wall, monotonic)| wall ^ monotonic);
    if let Some((word, bit)) = bits.by_ref().enumerate().find(|(_, bit)| *bit != 0) {
        CLOCK_WORD.store(word, Relaxed);
        CLOCK_BIT.store(bit, Relaxed);
    }
}

unsafe fn clock_of_condition(cond: *const c_void) -> c_int {
    let word = unsafe { &*cond.cast::<AtomicU32>().add(CLOCK_WORD.load(Relaxed)) };
    if word.load(Relaxed) & CLOCK_BIT.load(Relaxed) == 0 { REALTIME } else { MONOTONIC }
}
