//! A ttl as the nodes count it, and until when a grant of it is worth something.

use std::time::Duration;

use lock_core::{Effect, Error, ErrorKind, Lease, Moment, Result};

/// The shortest ttl: below it a slow round eats the lease.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(100);

/// The unit of a ttl.
pub(crate) const STEP: Duration = Duration::from_millis(1);

/// How long the last fencing token outlives its lock.
const FENCE_OUTLIVES: Duration = Duration::from_secs(24 * 60 * 60);

/// A ttl that the nodes can keep: what they give, and what they are told.
#[derive(Clone, Debug)]
pub(crate) struct Ttl {
    pub(crate) given: Duration,
    pub(crate) millis: String,
    pub(crate) fence_millis: String,
}

impl Ttl {
    /// Checks `ttl` and rounds it up to whole milliseconds.
    pub(crate) fn new(ttl: Duration, backend: &str, operation: &'static str) -> Result<Self> {
        let refused = |says| Error::new(ErrorKind::InvalidInput, Effect::None, backend, operation, says);
        if ttl < MIN_TTL {
            let says = format!("a ttl of {ttl:?} is below the minimum of {MIN_TTL:?}; ask for at least that");
            return Err(refused(says));
        }
        if ttl > Lease::MAX_TTL {
            let says = format!("a ttl of {ttl:?} is above the maximum of 365 days; renew a shorter one");
            return Err(refused(says));
        }
        let millis = ttl.as_nanos().div_ceil(STEP.as_nanos());
        let given = Duration::from_millis(u64::try_from(millis).expect("365 days are below 2^64 ms"));
        let fence_millis = (millis + FENCE_OUTLIVES.as_millis()).to_string();
        Ok(Self { given, millis: millis.to_string(), fence_millis })
    }

    /// The end of the validity of a round whose first request was sent at `sent_at`: less 1 % and 2 ms for clocks that run at
    /// different rates, which is redis.io's own figure.
    pub(crate) fn valid_until(&self, sent_at: Moment) -> Moment {
        let drift = self.given / 100 + Duration::from_millis(2);
        sent_at.saturating_add(self.given.saturating_sub(drift))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_rounded_up_and_never_truncated() {
        for (nanos, millis) in [(100_000_000, 100), (100_000_001, 101), (100_999_999, 101), (2_000_000_000, 2_000)] {
            let ttl = Ttl::new(Duration::from_nanos(nanos), "redlock", "acquire").unwrap();
            assert_eq!(ttl.millis, millis.to_string());
            assert_eq!(ttl.given, Duration::from_millis(millis));
            assert_eq!(ttl.fence_millis, (millis + 86_400_000).to_string());
        }
        assert_eq!(Ttl::new(Lease::MAX_TTL, "redlock", "acquire").unwrap().given, Lease::MAX_TTL);
    }

    #[test]
    fn a_ttl_out_of_range_is_refused_with_the_range() {
        for (ttl, says) in [
            (Duration::ZERO, "below the minimum of 100ms"),
            (Duration::from_micros(99_999), "below the minimum of 100ms"),
            (Duration::MAX, "above the maximum of 365 days"),
        ] {
            let error = Ttl::new(ttl, "redlock", "renew").unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None));
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn the_validity_is_the_ttl_less_the_drift() {
        let sent_at = Moment::now();
        let ttl = Ttl::new(Duration::from_secs(10), "redlock", "acquire").unwrap();
        assert_eq!(ttl.valid_until(sent_at).saturating_duration_since(sent_at), Duration::from_millis(9_898));
    }
}
