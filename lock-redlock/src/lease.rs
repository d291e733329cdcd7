//! Until when a grant by a majority is worth something.

use std::time::Duration;

use lock_core::Moment;
use lock_redis::Ttl;

/// The end of the validity of a round whose first request was sent at `sent_at`: less 1 % and 2 ms for clocks that run at
/// different rates, which is redis.io's own figure.
pub(crate) fn valid_until(ttl: &Ttl, sent_at: Moment) -> Moment {
    let drift = ttl.given / 100 + Duration::from_millis(2);
    sent_at.saturating_add(ttl.given.saturating_sub(drift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_validity_is_the_ttl_less_the_drift() {
        let sent_at = Moment::now();
        let ttl = Ttl::new(Duration::from_secs(10), "redlock", "acquire").unwrap();
        assert_eq!(valid_until(&ttl, sent_at).saturating_duration_since(sent_at), Duration::from_millis(9_898));
    }
}
