use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::Lease;

/// How a [`Locks`](crate::Locks) behaves. The defaults suit a service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The lease of a lock that sets none: renewed, 30 s, unless set.
    pub lease: Lease,
    /// How long a store that cannot be reached is tried before `acquire` says so: 5 s unless set. Counted once per key, not
    /// per waiter.
    pub unavailable_after: Duration,
    /// The longest that a lock is kept, from its grant: no limit unless set. At its end the lock is lost with a reason of its
    /// own and given back, so that a hung holder does not keep it for ever.
    pub max_hold: Option<Duration>,
    /// The runtime of the keeper: that of the first use, unless set.
    pub keeper_on: Option<Handle>,
    /// Who holds, for a person who looks at a lock, such as host and pid: nothing unless set.
    pub label: Option<Arc<str>>,
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self {
            lease: Lease::default(),
            unavailable_after: Duration::from_secs(5),
            max_hold: None,
            keeper_on: None,
            label: None,
        }
    }

    /// Sets the lease of locks that set none themselves.
    #[must_use]
    pub fn with_lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how long a store that cannot be reached is tried. Zero: once.
    #[must_use]
    pub fn with_unavailable_after(mut self, patience: Duration) -> Self {
        self.unavailable_after = patience;
        self
    }

    /// Sets the longest that a lock is kept.
    #[must_use]
    pub fn with_max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// Gives the keeper a runtime of its own, for a program whose tasks may keep all workers busy. The runtime needs its
    /// timers enabled.
    #[must_use]
    pub fn with_keeper_on(mut self, runtime: Handle) -> Self {
        self.keeper_on = Some(runtime);
        self
    }

    /// Sets the label that holders leave in the store, where it has room for one.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}
