use std::time::Duration;

use lock_core::{Effect, Error, ErrorKind, Guarantees, Lease, Result};

/// `ttl` in whole steps of the strategy, rounded up, so that the store never keeps less than was asked.
///
/// Cutting it off instead is how half a second becomes `EXPIRE key 0`, which deletes the key at once.
pub(crate) fn round_up(
    ttl: Duration,
    guarantees: &Guarantees,
    strategy: &str,
    operation: &'static str,
) -> Result<Duration> {
    let Guarantees { min_ttl, ttl_step, .. } = *guarantees;
    let refuse = |says| Err(Error::new(ErrorKind::InvalidInput, Effect::None, strategy, operation, says));
    if ttl < min_ttl {
        return refuse(format!("a ttl of {ttl:?} is below the minimum of {min_ttl:?}; ask for at least that"));
    }
    if ttl > Lease::MAX_TTL {
        return refuse(format!("a ttl of {ttl:?} is above the maximum of 365 days; renew a shorter one"));
    }
    let step = ttl_step.as_nanos();
    let nanos = ttl.as_nanos().div_ceil(step) * step;
    Ok(Duration::from_nanos(u64::try_from(nanos).expect("365 days are fewer than 2^64 nanoseconds")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{blind_delete, setnx_expire};

    #[test]
    fn a_fraction_is_rounded_up_and_never_cut_off() {
        let seconds = |ttl| round_up(ttl, &setnx_expire::GUARANTEES, "naive", "acquire").unwrap();
        let millis = |ttl| round_up(ttl, &blind_delete::GUARANTEES, "naive", "acquire").unwrap();
        assert_eq!(seconds(Duration::from_secs(1)), Duration::from_secs(1));
        assert_eq!(seconds(Duration::from_millis(1_001)), Duration::from_secs(2));
        assert_eq!(seconds(Duration::from_nanos(2_000_000_001)), Duration::from_secs(3));
        assert_eq!(millis(Duration::from_millis(100)), Duration::from_millis(100));
        assert_eq!(millis(Duration::from_micros(100_001)), Duration::from_millis(101));
        assert_eq!(millis(Lease::MAX_TTL), Lease::MAX_TTL);
    }

    #[test]
    fn a_ttl_out_of_range_is_refused_with_the_range() {
        for (ttl, says) in [
            (Duration::ZERO, "below the minimum of 1s"),
            (Duration::from_millis(500), "below the minimum of 1s"),
            (Duration::from_nanos(999_999_999), "below the minimum of 1s"),
            (Duration::MAX, "above the maximum of 365 days"),
        ] {
            let error = round_up(ttl, &setnx_expire::GUARANTEES, "naive", "acquire").unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None));
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
