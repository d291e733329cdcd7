//! A ttl as the server counts it.

use std::time::Duration;

use lock_core::{Effect, Error, ErrorKind, Lease, Result};

/// How long the last fencing token outlives its lock.
const FENCE_OUTLIVES: Duration = Duration::from_secs(24 * 60 * 60);

/// A ttl that a Redis can keep: what it gives, and what it is told. For strategies that keep their locks on Redis, here and in
/// other crates.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ttl {
    /// What is given, in whole milliseconds.
    pub given: Duration,
    /// The same for a command.
    pub millis: String,
    /// How long the last fencing token is kept: a day longer.
    pub fence_millis: String,
}

impl Ttl {
    /// The shortest: below it a slow round trip eats the lease.
    pub const MIN: Duration = Duration::from_millis(100);

    /// Its unit.
    pub const STEP: Duration = Duration::from_millis(1);

    /// Checks `ttl` and rounds it up to whole milliseconds.
    ///
    /// # Errors
    ///
    /// `InvalidInput` below [`MIN`](Ttl::MIN) and above [`Lease::MAX_TTL`].
    pub fn new(ttl: Duration, backend: &str, operation: &'static str) -> Result<Self> {
        let refused = |says| Error::new(ErrorKind::InvalidInput, Effect::None, backend, operation, says);
        if ttl < Self::MIN {
            let says = format!("a ttl of {ttl:?} is below the minimum of {:?}; ask for at least that", Self::MIN);
            return Err(refused(says));
        }
        if ttl > Lease::MAX_TTL {
            return Err(refused(format!("a ttl of {ttl:?} is above the maximum of 365 days; renew a shorter one")));
        }
        let nanos = ttl.subsec_nanos().next_multiple_of(1_000_000);
        let given = Duration::from_secs(ttl.as_secs()) + Duration::from_nanos(nanos.into());
        let millis = given.as_millis();
        let fence_millis = (millis + FENCE_OUTLIVES.as_millis()).to_string();
        Ok(Self { given, millis: millis.to_string(), fence_millis })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_rounded_up_and_never_truncated() {
        for (nanos, millis) in
            [(100_000_000, 100), (100_000_001, 101), (100_999_999, 101), (1_999_999_999, 2_000), (2_000_000_000, 2_000)]
        {
            let ttl = Ttl::new(Duration::from_nanos(nanos), "redis", "acquire").unwrap();
            assert_eq!(ttl.millis, millis.to_string());
            assert_eq!(ttl.given, Duration::from_millis(millis));
            assert_eq!(ttl.fence_millis, (millis + 86_400_000).to_string());
        }
        assert_eq!(Ttl::new(Lease::MAX_TTL, "redis", "acquire").unwrap().given, Lease::MAX_TTL);
    }

    #[test]
    fn a_ttl_out_of_range_is_refused_with_the_range() {
        for (ttl, says) in [
            (Duration::ZERO, "below the minimum of 100ms"),
            (Duration::from_micros(99_999), "below the minimum of 100ms"),
            (Duration::MAX, "above the maximum of 365 days"),
        ] {
            let error = Ttl::new(ttl, "redis", "renew").unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None));
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
