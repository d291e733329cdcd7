use std::fmt;
use std::time::Duration;

use zookeeper_client::{Acl, Acls};

use crate::Naming;

/// Where the locks stand, how their nodes are named, and how long a request may take.
///
/// # Examples
///
/// ```
/// use lock_zookeeper::{Config, Naming};
///
/// let config = Config::new().with_prefix("/locks").with_naming(Naming::Kazoo);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// The path below which every lock has a path of its own; `/hasp` unless set. All clients of a lock must have the same
    /// one. Empty: locks stand directly below the root (or the chroot of the connect string).
    pub prefix: String,
    /// How nodes are named: as Curator's unless set.
    pub naming: Naming,
    /// Who may do what with the nodes that are made; everybody everything unless set.
    pub acls: Vec<Acl>,
    /// How long one request may take, waiting for a lost connection included, before it fails as `Unavailable`; 2 s unless
    /// set. Keep it well below a sixth of the session's timeout.
    pub request_limit: Duration,
    /// How long making a session may take; 10 s unless set.
    pub connect_limit: Duration,
}

impl Config {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self {
            prefix: "/hasp".to_owned(),
            naming: Naming::Curator,
            acls: Acls::anyone_all().to_vec(),
            request_limit: Duration::from_secs(2),
            connect_limit: Duration::from_secs(10),
        }
    }

    /// The same with another prefix.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The same with another naming.
    #[must_use]
    pub const fn with_naming(mut self, naming: Naming) -> Self {
        self.naming = naming;
        self
    }

    /// The same with other rights on what is made, such as `Acls::creator_all()` of the client for a session with
    /// credentials.
    #[must_use]
    pub fn with_acls(mut self, acls: &[Acl]) -> Self {
        self.acls = acls.to_vec();
        self
    }

    /// The same with another limit per request.
    #[must_use]
    pub const fn with_request_limit(mut self, limit: Duration) -> Self {
        self.request_limit = limit;
        self
    }

    /// The same with another limit for making a session.
    #[must_use]
    pub const fn with_connect_limit(mut self, limit: Duration) -> Self {
        self.connect_limit = limit;
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The ids of a digest ACL are hashes of passwords.
        f.debug_struct("Config")
            .field("prefix", &self.prefix)
            .field("naming", &self.naming)
            .field("acls", &self.acls.len())
            .field("request_limit", &self.request_limit)
            .field("connect_limit", &self.connect_limit)
            .finish()
    }
}
