use std::time::Duration;

/// Growing pauses between tries: doubled each time up to a limit, and jittered by a quarter either way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// For a store that cannot be reached while acquiring or releasing.
    pub(crate) const fn of_outage() -> Self {
        Self { next: Duration::from_millis(50), longest: Duration::from_secs(1) }
    }

    /// For renewing a lease of `ttl`: several tries fit into the two thirds that are left of it.
    pub(crate) fn of_renewal(ttl: Duration) -> Self {
        Self { next: (ttl / 20).min(Duration::from_millis(50)), longest: (ttl / 10).min(Duration::from_secs(1)) }
    }

    /// For a debt that is paid until `ttl` is over: about twenty tries for a long one.
    pub(crate) fn of_debt(ttl: Duration) -> Self {
        Self { next: (ttl / 20).min(Duration::from_millis(100)), longest: (ttl / 20).max(Duration::from_secs(1)) }
    }

    /// The next pause.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause.mul_f64(0.75 + fastrand::f64() / 2.0).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_limit_and_are_never_zero() {
        let mut backoff = Backoff::of_outage();
        let pauses: Vec<_> = (0..10).map(|_| backoff.pause()).collect();
        assert!(pauses[0] >= Duration::from_micros(37_500) && pauses[0] <= Duration::from_micros(62_500));
        assert!(pauses[9] >= Duration::from_millis(750) && pauses[9] <= Duration::from_millis(1_250));
        assert!(Backoff::of_renewal(Duration::from_nanos(1)).pause() >= Duration::from_millis(1));
    }
}
