use std::time::Duration;

/// Where the locks' keys stand, and how long a request may take.
///
/// # Examples
///
/// ```
/// let config = lock_naive::Config::new().with_prefix("staging:");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// What every key begins with; `hasp:` unless set. After it come the strategy's name, a colon and the lock's name. All
    /// clients of a lock must have the same one.
    pub prefix: String,
    /// How long one request may take, connecting anew included, before it fails as `Unavailable`; 1 s unless set. Keep it
    /// well below a third of the shortest ttl in use.
    pub request_limit: Duration,
}

impl Config {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self { prefix: "hasp:".to_owned(), request_limit: Duration::from_secs(1) }
    }

    /// The same with another prefix.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The same with another limit per request.
    #[must_use]
    pub const fn with_request_limit(mut self, limit: Duration) -> Self {
        self.request_limit = limit;
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}
