use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// An instant on a clock that also counts the time the machine was suspended.
///
/// It is tokio's clock plus (`CLOCK_BOOTTIME` - `CLOCK_MONOTONIC`), so that suspend counts and tokio's paused time works in
/// tests. On Linux and Android the difference is read from the system; on other platforms it is taken as zero, so there the
/// clock counts suspend only where `std::time::Instant` does (Windows, not macOS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Instant);

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        let suspended = suspended();
        #[cfg(test)]
        let suspended = suspended + suspend::pretended();
        Self(Instant::now() + suspended)
    }

    /// This moment plus `duration`, or `None` if that is out of the clock's range.
    #[must_use]
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration).map(Self)
    }

    /// This moment plus `duration`, at most [`Lease::MAX_TTL`](crate::Lease::MAX_TTL) times ten from this moment.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0 + duration.min(crate::Lease::MAX_TTL * 10))
    }

    /// How long after `earlier` this moment is; zero if it is not.
    #[must_use]
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// How long from now until this moment; zero if it has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.saturating_duration_since(Self::now())
    }
}

/// Waits until `moment`, also when the machine is suspended meanwhile: it looks at the clock once a second, because tokio's
/// timers stand still in a suspend.
pub(crate) async fn sleep_until(moment: Moment) {
    loop {
        let remaining = moment.remaining();
        if remaining.is_zero() {
            return;
        }
        tokio::time::sleep(remaining.min(Duration::from_secs(1))).await;
    }
}

/// How long the machine has been suspended since it started.
///
/// Two clocks cannot be read at the same instant, so growth below 5 ms counts as jitter of the reading: the last value
/// stands, and paused time stays exact.
fn suspended() -> Duration {
    static LAST_NANOS: AtomicU64 = AtomicU64::new(0);
    const JITTER_NANOS: u64 = 5_000_000;

    let read = read_suspended_nanos();
    let last = LAST_NANOS.load(Ordering::Relaxed);
    if read <= last.saturating_add(JITTER_NANOS) {
        return Duration::from_nanos(last);
    }
    Duration::from_nanos(LAST_NANOS.fetch_max(read, Ordering::Relaxed).max(read))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn read_suspended_nanos() -> u64 {
    use nix::time::ClockId;

    let read = |clock: ClockId| {
        let time = clock.now().expect("Linux has had CLOCK_MONOTONIC and CLOCK_BOOTTIME since 2.6.39");
        Duration::from(time)
    };
    // In this order a pause between the two readings hides a suspend until the next look, and never pretends one.
    let boottime = read(ClockId::CLOCK_BOOTTIME);
    let monotonic = read(ClockId::CLOCK_MONOTONIC);
    u64::try_from(boottime.saturating_sub(monotonic).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn read_suspended_nanos() -> u64 {
    0
}

/// Lets a test suspend the machine, for its own thread.
#[cfg(test)]
pub(crate) mod suspend {
    use std::cell::Cell;
    use std::time::Duration;

    thread_local! {
        static PRETENDED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    pub(crate) fn machine(duration: Duration) {
        PRETENDED.set(PRETENDED.get() + duration);
    }

    /// Has the machine been suspended for so long in all.
    pub(crate) fn pretend(total: Duration) {
        PRETENDED.set(total);
    }

    pub(super) fn pretended() -> Duration {
        PRETENDED.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_steps_back() {
        let mut last = Moment::now();
        for _ in 0..10_000 {
            let now = Moment::now();
            assert!(now >= last);
            last = now;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn paused_time_moves_it() {
        let start = Moment::now();
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(Moment::now().saturating_duration_since(start), Duration::from_secs(10));
        sleep_until(start.saturating_add(Duration::from_millis(12_345))).await;
        assert!(start.saturating_add(Duration::from_millis(12_345)) <= Moment::now());
    }

    #[test]
    fn sums_do_not_panic() {
        let now = Moment::now();
        assert_eq!(now.checked_add(Duration::MAX), None);
        assert!(now.saturating_add(Duration::MAX) > now);
        assert_eq!(now.saturating_duration_since(now.saturating_add(Duration::from_secs(1))), Duration::ZERO);
    }
}
