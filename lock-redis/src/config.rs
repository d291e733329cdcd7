use std::time::Duration;

/// How a [`Connection`](crate::Connection) behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The longest that one request may take, reconnecting included; 1 s unless set. After it the request counts as
    /// failed, with unknown effect. Keep it well below a third of the shortest ttl in use.
    pub request_limit: Duration,
    /// How often a waiter asks where no message can wake it (a pool, a bare manager, a user without channel rights);
    /// 100 ms unless set, jittered by a quarter either way.
    pub poll_interval: Duration,
}

impl Config {
    /// The defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self { request_limit: Duration::from_secs(1), poll_interval: Duration::from_millis(100) }
    }

    /// The same with another limit per request.
    #[must_use]
    pub const fn with_request_limit(mut self, limit: Duration) -> Self {
        self.request_limit = limit;
        self
    }

    /// The same with another interval between two questions of a polling waiter.
    #[must_use]
    pub const fn with_poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = interval;
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}
