use std::time::Duration;

use lock_core::{Effect, Error, ErrorKind, Result};

/// How a [`Redlock`](crate::Redlock) keeps its locks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedlockOptions {
    /// What every key begins with, so that no lock meets another key of the application; `hasp:` unless set. May be empty,
    /// to meet locks of other libraries under their own names; then [`list`](lock_core::Backend::list) is unsupported.
    pub prefix: String,
    /// How long one node may take before a round goes on without it. Unless set: a tenth of the ttl, from 20 ms to 500 ms;
    /// and 500 ms where there is no ttl. Redis.io recommends 5 to 50 ms for a lease of 10 s on a near network.
    pub node_limit: Option<Duration>,
    /// The shortest pause before a waiter tries again; 50 ms unless set.
    pub min_retry_delay: Duration,
    /// The longest pause before a waiter tries again; 150 ms unless set. Each pause is drawn at random between the two, so
    /// that those who split the votes do not meet again. Keep the difference well above one round.
    pub max_retry_delay: Duration,
}

impl RedlockOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self {
            prefix: "hasp:".to_owned(),
            node_limit: None,
            min_retry_delay: Duration::from_millis(50),
            max_retry_delay: Duration::from_millis(150),
        }
    }

    /// The same with another prefix.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The same with a fixed limit per node, whatever the ttl.
    #[must_use]
    pub fn with_node_limit(mut self, limit: Duration) -> Self {
        self.node_limit = Some(limit);
        self
    }

    /// The same with other pauses between the tries of a waiter.
    #[must_use]
    pub fn with_retry_delay(mut self, min: Duration, max: Duration) -> Self {
        (self.min_retry_delay, self.max_retry_delay) = (min, max);
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        let fault = if self.prefix.contains(char::is_control) {
            "`prefix` has a control character; use printable text such as `hasp:`"
        } else if self.node_limit.is_some_and(|limit| limit.is_zero()) {
            "`node_limit` is zero; give the nodes at least a few milliseconds"
        } else if self.min_retry_delay.is_zero() {
            "`min_retry_delay` is zero, so waiters would not pause; give it at least a few milliseconds"
        } else if self.max_retry_delay < self.min_retry_delay {
            "`max_retry_delay` is below `min_retry_delay`; exchange them"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::InvalidInput, Effect::None, "redlock", "connect", fault))
    }

    /// How long a node may take for a lease of `ttl`.
    pub(crate) fn node_limit(&self, ttl: Duration) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(20);

        self.node_limit.unwrap_or_else(|| (ttl / 10).clamp(SHORTEST, LONGEST_LIMIT))
    }

    /// How long a node may take where no lease is at stake.
    pub(crate) fn look_limit(&self) -> Duration {
        self.node_limit.unwrap_or(LONGEST_LIMIT)
    }

    /// A pause before the next try.
    pub(crate) fn retry_delay(&self) -> Duration {
        let spread = self.max_retry_delay.saturating_sub(self.min_retry_delay);
        self.min_retry_delay + spread.mul_f64(fastrand::f64())
    }
}

impl Default for RedlockOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The longest that a node is waited for by default.
const LONGEST_LIMIT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_per_node_is_a_tenth_of_the_ttl_within_bounds() {
        let options = RedlockOptions::new();
        for (ttl, limit) in [(100, 20), (200, 20), (1_000, 100), (5_000, 500), (30_000, 500)] {
            assert_eq!(options.node_limit(Duration::from_millis(ttl)), Duration::from_millis(limit), "{ttl}");
        }
        let fixed = options.with_node_limit(Duration::from_millis(70));
        assert_eq!(fixed.node_limit(Duration::from_secs(30)), Duration::from_millis(70));
        assert_eq!(fixed.look_limit(), Duration::from_millis(70));
    }

    #[test]
    fn pauses_lie_between_the_delays_and_differ() {
        let options = RedlockOptions::new().with_retry_delay(Duration::from_millis(10), Duration::from_millis(30));
        let pauses: Vec<_> = (0..100).map(|_| options.retry_delay().as_nanos()).collect();
        assert!(pauses.iter().all(|nanos| (10_000_000..=30_000_000).contains(nanos)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }

    #[test]
    fn wrong_options_are_named() {
        let (zero, ten) = (Duration::ZERO, Duration::from_millis(10));
        for (options, names) in [
            (RedlockOptions::new().with_prefix("a\n"), "`prefix`"),
            (RedlockOptions::new().with_node_limit(zero), "`node_limit`"),
            (RedlockOptions::new().with_retry_delay(zero, ten), "`min_retry_delay`"),
            (RedlockOptions::new().with_retry_delay(ten, Duration::from_millis(9)), "`max_retry_delay`"),
        ] {
            let error = options.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(names), "{error}");
        }
        RedlockOptions::new().with_retry_delay(ten, ten).check().unwrap();
    }
}
