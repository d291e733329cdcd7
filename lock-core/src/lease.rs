use std::time::Duration;

use crate::{Effect, Error, ErrorKind, Moment, Result};

/// How long a grant lives without renewal, and whether it is renewed.
///
/// | | ends | for |
/// | --- | --- | --- |
/// | [`Lease::renewed`] | a ttl after its holder stops renewing | work of unknown length; the default, with 30 s |
/// | [`Lease::fixed`] | at its ttl, whatever happens | work that must not hold for longer |
///
/// The ttl is checked when a lock is acquired: from the backend's minimum ([`Guarantees::min_ttl`]) to [`Lease::MAX_TTL`].
///
/// [`Guarantees::min_ttl`]: crate::Guarantees::min_ttl
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    ttl: Duration,
    renewed: bool,
}

impl Lease {
    /// The longest ttl: 365 days.
    pub const MAX_TTL: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    /// A lease that is kept alive, at every third of `ttl`, for as long as its guard lives.
    #[must_use]
    pub const fn renewed(ttl: Duration) -> Self {
        Self { ttl, renewed: true }
    }

    /// A lease that ends by itself after `ttl`, unless it is extended.
    #[must_use]
    pub const fn fixed(ttl: Duration) -> Self {
        Self { ttl, renewed: false }
    }

    /// How long the lease lives without renewal.
    #[must_use]
    pub const fn ttl(self) -> Duration {
        self.ttl
    }

    /// Whether the lease is kept alive.
    #[must_use]
    pub const fn is_renewed(self) -> bool {
        self.renewed
    }
}

impl Default for Lease {
    /// Renewed, with a ttl of 30 s.
    fn default() -> Self {
        Self::renewed(Duration::from_secs(30))
    }
}

/// The part of a ttl that is given up to clocks that run at different rates: 1 % and 2 ms.
///
/// The figure is Redlock's (redis.io, "Distributed Locks with Redis", its `CLOCK_DRIFT_FACTOR` of 0.01 plus 2 ms).
pub(crate) fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// Until when a holder may act whose last ttl-restarting request was sent at `sent_at`; on whole milliseconds, as the stores
/// count.
pub(crate) fn deadline(sent_at: Moment, ttl: Duration) -> Moment {
    let safe = ttl.saturating_sub(drift(ttl));
    sent_at.saturating_add(Duration::from_millis(u64::try_from(safe.as_millis()).unwrap_or(u64::MAX)))
}

/// Refuses a ttl that the backend cannot keep.
pub(crate) fn check_ttl(ttl: Duration, min_ttl: Duration, backend: &str, operation: &'static str) -> Result<()> {
    if ttl < min_ttl {
        let says = format!("a ttl of {ttl:?} is below the minimum of {min_ttl:?}; ask for at least that");
        return Err(Error::new(ErrorKind::InvalidInput, Effect::None, backend, operation, says));
    }
    if ttl > Lease::MAX_TTL {
        let says = format!(
            "a ttl of {ttl:?} is above the maximum of 365 days; use a renewed lease to hold for as long as needed"
        );
        return Err(Error::new(ErrorKind::InvalidInput, Effect::None, backend, operation, says));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_is_the_send_plus_the_ttl_less_the_drift() {
        let sent_at = Moment::now();
        for (ttl, safe) in [(30_000, 29_698), (1_000, 988), (100, 97), (2, 0), (1, 0)] {
            let deadline = deadline(sent_at, Duration::from_millis(ttl));
            assert_eq!(deadline.saturating_duration_since(sent_at), Duration::from_millis(safe), "{ttl}");
        }
    }

    #[test]
    fn a_ttl_out_of_range_is_refused_with_the_range() {
        let min = Duration::from_millis(100);
        for (ttl, says) in [
            (Duration::ZERO, "below the minimum of 100ms"),
            (Duration::from_micros(99_999), "below the minimum of 100ms"),
            (Duration::MAX, "above the maximum of 365 days"),
        ] {
            let error = check_ttl(ttl, min, "redis", "acquire").unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None));
            assert!(error.to_string().contains(says), "{error}");
        }
        for ttl in [min, Lease::MAX_TTL] {
            check_ttl(ttl, min, "redis", "acquire").unwrap();
        }
    }
}
