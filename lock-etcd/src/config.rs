use std::time::Duration;

/// How [`Etcd`](crate::Etcd) keeps its locks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// What every key begins with, so that no lock meets another key of the application; `hasp/` unless set. May be empty, to
    /// meet the locks of other clients under their own names; then [`list`](lock_core::Backend::list) is unsupported.
    pub prefix: String,
    /// How a lock's name becomes a part of a key; escaped unless set.
    pub names: Names,
    /// The longest that one request may take, reconnecting and other endpoints included; 1 s unless set. After it the request
    /// counts as failed, with unknown effect. Keep it well below a third of the shortest ttl in use.
    pub request_limit: Duration,
}

impl Config {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self { prefix: "hasp/".to_owned(), names: Names::Escaped, request_limit: Duration::from_secs(1) }
    }

    /// The same with another prefix.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The same with another form of names.
    #[must_use]
    pub fn with_names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// The same with another limit per request.
    #[must_use]
    pub fn with_request_limit(mut self, limit: Duration) -> Self {
        self.request_limit = limit;
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

/// How a lock's name becomes a part of a key.
///
/// A lock named `a` is the keys that begin with `a/`. So `etcdctl lock a` waits while somebody holds `a/b`, because `a/b/...`
/// begins with `a/` too; and while `a` is held, `a/b` is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Names {
    /// `/` is written `%2F` and `%` is written `%25`, so that no lock nests in another. A name without the two is the same
    /// for every client.
    Escaped,
    /// As they are, to share a lock with a client that uses `/` in its names. Names nest then: whoever holds `a/b` blocks
    /// `a`, for us as for the other client. Do not use a name that is another's beginning up to a `/`.
    Raw,
}
