//! Moves the clocks of real, unchanged processes: a redis-server, a JVM, a program in Rust.
//!
//! A lock's faults are faults of time: a holder sleeps past its lease, a server's wall clock jumps, a laptop is suspended. To
//! wait for a lease of a minute takes a minute; to step a clock takes none. [`Clocks`] is one set of offsets, shared with
//! every process of a lab by a file. Each process gets a [`Slot`], whose [variables](Slot::env) make ld.so(8) preload a small
//! library; it adds the offsets to what clock_gettime(2) and its kin tell, and takes them off what a process waits for.
//!
//! # Two offsets
//!
//! The *common* offset is added to every clock of every process: time has passed for everybody, servers, contenders and
//! history alike ([`Clocks::step`]). The *own* offsets of a slot are added to one process's clocks: this clock is wrong
//! ([`Slot::step_wall_forward`] and the others). The difference is that between "the ttl ran out", which every lease must
//! survive, and "the server's clock jumped", which few locks do: to step the server alone never shows the former.
//!
//! # The lab clock
//!
//! CLOCK_MONOTONIC_RAW gets the common offset and no other. It is the one clock that all processes share, and the only one
//! to stamp a history with: by the bare CLOCK_MONOTONIC_RAW a step is invisible, so a sound lock would be accused. A process
//! under the shim reads it by clock_gettime(2); the lab itself, which is not under the shim, by [`Clocks::lab_now`].
//!
//! # Rules of a sound step
//!
//! 1. Step while every contender is stopped: stop it, wait until it stands still, step, let it run on. A process that runs
//!    does not notice a step, because a wait that is under way is not cut short; SIGCONT interrupts epoll_wait(2), so the
//!    timers of tokio fire within milliseconds. It interrupts no wait for a futex or a condition variable: a
//!    `recv_timeout` that began before the step lasts its real length. (A server looks at its clock whenever it is asked,
//!    and may run.)
//! 2. Step while no request is in flight: the step also fires the time limits of the client library.
//! 3. MONOTONIC and BOOTTIME only go forward, as everybody relies on; there is no method to step them back, and
//!    [`Clocks::suspend`] holds MONOTONIC where it is. The wall clock may go anywhere.
//! 4. Prove before you judge: [`Slot::prove`] says whether a process sees its clocks. The shim reaches none that is linked
//!    statically or asks the kernel without libc, such as etcd and whatever else is written in Go.
//!
//! # What is moved
//!
//! CLOCK_REALTIME, MONOTONIC, BOOTTIME, their COARSE and ALARM forms and TAI get the common and an own offset,
//! MONOTONIC_RAW gets the common one, clocks of processor time none. That holds for `clock_gettime`, `gettimeofday` and
//! `time`. Waits until a time are converted: `clock_nanosleep` with TIMER_ABSTIME, `timerfd_settime` with
//! TFD_TIMER_ABSTIME, the timed waits for condition variables, semaphores, mutexes and read-write locks of pthreads(7), and
//! FUTEX_WAIT_BITSET by `syscall`, which is how the standard library of Rust waits.
//!
//! Not converted: what asks the kernel by an instruction of its own, `timer_settime`, `mq_timedsend`, `mq_timedreceive`,
//! `pthread_timedjoin_np`, and the other absolute operations of futex(2). Nothing that the lab runs waits by them.
//!
//! It needs Linux with glibc, on x86_64 or aarch64.
//!
//! # Examples
//!
//! ```
//! use std::process::Command;
//! use std::time::Duration;
//!
//! use lock_clock::Clocks;
//!
//! let clocks = Clocks::start()?;
//! let slot = clocks.slot()?;
//! slot.step_wall_forward(Duration::from_secs(100 * 365 * 86_400))?;
//! let year = Command::new("date").arg("+%Y").envs(slot.env()).output()?;
//! assert!(String::from_utf8_lossy(&year.stdout).starts_with("21"));
//! # Ok::<(), std::io::Error>(())
//! ```

mod clocks;
#[path = "../preload/layout.rs"]
mod layout;
mod slot;
mod table;

pub use clocks::Clocks;
pub use slot::{Clock, Slot};
