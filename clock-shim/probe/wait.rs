//! Every way to wait that the shim converts, and those of the standard library that stand on them.

use std::mem::MaybeUninit;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use std::{io, ptr, thread};

use nix::libc::{self, c_int, clockid_t, timespec};

const LENGTH: Duration = Duration::from_millis(200);

pub(crate) type Wait = fn() -> io::Result<()>;

/// The wait of this name.
pub(crate) fn named(name: &str) -> Option<Wait> {
    Some(match name {
        "recv_timeout" => recv_timeout,
        "park_timeout" => park_timeout,
        "wait_timeout" => wait_timeout,
        "sleep" => sleep,
        "clock_nanosleep" => clock_nanosleep,
        "cond_timedwait" => || cond_timedwait(libc::CLOCK_REALTIME),
        "cond_timedwait_monotonic" => || cond_timedwait(libc::CLOCK_MONOTONIC),
        "cond_clockwait" => || cond_clockwait(libc::CLOCK_REALTIME),
        "cond_clockwait_monotonic" => || cond_clockwait(libc::CLOCK_MONOTONIC),
        "mutex_timedlock" => mutex_timedlock,
        "mutex_clocklock" => mutex_clocklock,
        "rwlock_timedrdlock" => || rwlock(pthread_rwlock_timedrdlock),
        "rwlock_timedwrlock" => || rwlock(pthread_rwlock_timedwrlock),
        "sem_timedwait" => sem_timedwait,
        "sem_clockwait" => sem_clockwait,
        "timerfd" => || timerfd(libc::CLOCK_REALTIME),
        "timerfd_monotonic" => || timerfd(libc::CLOCK_MONOTONIC),
        "timerfd_boottime" => || timerfd(libc::CLOCK_BOOTTIME),
        "futex" => || futex(libc::CLOCK_REALTIME, libc::FUTEX_CLOCK_REALTIME),
        "futex_monotonic" => || futex(libc::CLOCK_MONOTONIC, 0),
        _ => return None,
    })
}

fn recv_timeout() -> io::Result<()> {
    let (_sender, receiver) = channel::<()>();
    match receiver.recv_timeout(LENGTH) {
        Err(RecvTimeoutError::Timeout) => Ok(()),
        other => Err(io::Error::other(format!("nobody sends: {other:?}"))),
    }
}

fn park_timeout() -> io::Result<()> {
    thread::park_timeout(LENGTH);
    Ok(())
}

fn wait_timeout() -> io::Result<()> {
    let mutex = Mutex::new(());
    let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    drop(Condvar::new().wait_timeout_while(guard, LENGTH, |()| true));
    Ok(())
}

fn sleep() -> io::Result<()> {
    thread::sleep(LENGTH);
    Ok(())
}

/// When the wait is over, by the clock as this process sees it.
fn until(clock: clockid_t) -> timespec {
    let mut now = MaybeUninit::uninit();
    // SAFETY: it fills the timespec, because all kernels have the clocks that we ask for.
    let mut until: timespec = unsafe {
        assert_eq!(libc::clock_gettime(clock, now.as_mut_ptr()), 0);
        now.assume_init()
    };
    until.tv_nsec += i64::from(LENGTH.subsec_nanos());
    until.tv_sec += until.tv_nsec / 1_000_000_000;
    until.tv_nsec %= 1_000_000_000;
    until
}

/// What a wait must end with.
fn timed_out(error: c_int) -> io::Result<()> {
    if error == libc::ETIMEDOUT { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

fn clock_nanosleep() -> io::Result<()> {
    let clock = libc::CLOCK_MONOTONIC;
    // SAFETY: the time is one, and what remains is not asked for.
    match unsafe { libc::clock_nanosleep(clock, libc::TIMER_ABSTIME, &until(clock), ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// A condition variable of a clock, and a mutex that this thread holds, are given to `wait`.
fn with_condition(
    clock: clockid_t,
    wait: impl Fn(*mut libc::pthread_cond_t, *mut libc::pthread_mutex_t) -> c_int,
) -> io::Result<()> {
    let mut attributes = MaybeUninit::uninit();
    let mut condition = MaybeUninit::uninit();
    let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    // SAFETY: each is initialised before it is used, and moved no more.
    let error = unsafe {
        libc::pthread_condattr_init(attributes.as_mut_ptr());
        libc::pthread_condattr_setclock(attributes.as_mut_ptr(), clock);
        libc::pthread_cond_init(condition.as_mut_ptr(), attributes.as_ptr());
        libc::pthread_mutex_lock(&raw mut mutex);
        let mut error = 0;
        // It may wake for no reason.
        while error == 0 {
            error = wait(condition.as_mut_ptr(), &raw mut mutex);
        }
        libc::pthread_mutex_unlock(&raw mut mutex);
        error
    };
    timed_out(error)
}

fn cond_timedwait(clock: clockid_t) -> io::Result<()> {
    let until = until(clock);
    // SAFETY: `with_condition` gives what it needs.
    with_condition(clock, |condition, mutex| unsafe {
        libc::pthread_cond_timedwait(condition, mutex, &raw const until)
    })
}

fn cond_clockwait(clock: clockid_t) -> io::Result<()> {
    let until = until(clock);
    // SAFETY: `with_condition` gives what it needs. It waits by another clock than that of the condition variable.
    let wait = |condition, mutex| unsafe { pthread_cond_clockwait(condition, mutex, clock, &raw const until) };
    with_condition(if clock == libc::CLOCK_MONOTONIC { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC }, wait)
}

fn mutex_timedlock() -> io::Result<()> {
    let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    // SAFETY: the mutex is initialised, and not moved.
    timed_out(unsafe {
        libc::pthread_mutex_lock(&raw mut mutex);
        libc::pthread_mutex_timedlock(&raw mut mutex, &until(libc::CLOCK_REALTIME))
    })
}

fn mutex_clocklock() -> io::Result<()> {
    let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    let clock = libc::CLOCK_MONOTONIC;
    // SAFETY: the mutex is initialised, and not moved.
    timed_out(unsafe {
        libc::pthread_mutex_lock(&raw mut mutex);
        pthread_mutex_clocklock(&raw mut mutex, clock, &until(clock))
    })
}

fn rwlock(wait: unsafe extern "C" fn(*mut libc::pthread_rwlock_t, *const timespec) -> c_int) -> io::Result<()> {
    let mut lock = libc::PTHREAD_RWLOCK_INITIALIZER;
    let lock = &raw mut lock as usize;
    // Another thread holds it: a thread that waits for itself is refused at once.
    // SAFETY: the lock is initialised, and lives until the end of this function.
    let holder = thread::spawn(move || unsafe { libc::pthread_rwlock_wrlock(lock as *mut libc::pthread_rwlock_t) });
    assert_eq!(holder.join().expect("it does not panic"), 0);
    // SAFETY: as above.
    timed_out(unsafe { wait(lock as *mut libc::pthread_rwlock_t, &until(libc::CLOCK_REALTIME)) })
}

fn with_semaphore(wait: impl Fn(*mut libc::sem_t) -> c_int) -> io::Result<()> {
    let mut semaphore = MaybeUninit::uninit();
    // SAFETY: it is initialised here, and not moved.
    let answer = unsafe {
        libc::sem_init(semaphore.as_mut_ptr(), 0, 0);
        wait(semaphore.as_mut_ptr())
    };
    assert_eq!(answer, -1, "nobody posts");
    timed_out(io::Error::last_os_error().raw_os_error().expect("libc sets errno"))
}

fn sem_timedwait() -> io::Result<()> {
    // SAFETY: `with_semaphore` gives a semaphore.
    with_semaphore(|semaphore| unsafe { libc::sem_timedwait(semaphore, &until(libc::CLOCK_REALTIME)) })
}

fn sem_clockwait() -> io::Result<()> {
    let clock = libc::CLOCK_MONOTONIC;
    // SAFETY: `with_semaphore` gives a semaphore.
    with_semaphore(|semaphore| unsafe { sem_clockwait_of_libc(semaphore, clock, &until(clock)) })
}

fn timerfd(clock: clockid_t) -> io::Result<()> {
    let timer = libc::itimerspec { it_interval: timespec { tv_sec: 0, tv_nsec: 0 }, it_value: until(clock) };
    let mut count = 0_u64;
    // SAFETY: the kernel reads the timer, and writes eight bytes. The file is closed with the process.
    unsafe {
        let file = libc::timerfd_create(clock, 0);
        if file < 0 || libc::timerfd_settime(file, libc::TFD_TIMER_ABSTIME, &raw const timer, ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
        if libc::read(file, (&raw mut count).cast(), 8) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn futex(clock: clockid_t, flag: c_int) -> io::Result<()> {
    let word = 0_u32;
    let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG | flag;
    let until = until(clock);
    // SAFETY: the kernel reads the word and the time.
    let answer = unsafe {
        let (word, until, nobody) = (&raw const word, &raw const until, ptr::null::<u32>());
        libc::syscall(libc::SYS_futex, word, operation, 0, until, nobody, u32::MAX)
    };
    assert_eq!(answer, -1, "nobody wakes us");
    timed_out(io::Error::last_os_error().raw_os_error().expect("libc sets errno"))
}

// The `libc` crate does not declare these for Linux.
unsafe extern "C" {
    fn pthread_cond_clockwait(
        condition: *mut libc::pthread_cond_t,
        mutex: *mut libc::pthread_mutex_t,
        clock: clockid_t,
        until: *const timespec,
    ) -> c_int;
    fn pthread_mutex_clocklock(mutex: *mut libc::pthread_mutex_t, clock: clockid_t, until: *const timespec) -> c_int;
    fn pthread_rwlock_timedrdlock(lock: *mut libc::pthread_rwlock_t, until: *const timespec) -> c_int;
    fn pthread_rwlock_timedwrlock(lock: *mut libc::pthread_rwlock_t, until: *const timespec) -> c_int;
    #[link_name = "sem_clockwait"]
    fn sem_clockwait_of_libc(semaphore: *mut libc::sem_t, clock: clockid_t, until: *const timespec) -> c_int;
}
