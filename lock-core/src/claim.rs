use std::fmt;
use std::sync::Arc;

use crate::owner::random_bits;
use crate::{Lease, LockKey, Owner};

/// One attempt to get a lock: what a backend needs to know of it. Cheap to clone.
///
/// The driver makes one claim per acquisition and uses it for every request of that acquisition, so that a backend finds
/// its own grant again after a lost reply.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// What is to be locked.
    pub key: LockKey,
    /// For whom.
    pub owner: Owner,
    /// Tells this attempt from every other, also from those of the same owner.
    pub id: ClaimId,
    /// For how long, and whether it will be renewed.
    pub lease: Lease,
    /// Who is asking, for a person to read, such as host and pid. Nothing is decided by it.
    pub label: Option<Arc<str>>,
}

impl Claim {
    /// A new claim, with an id of its own and no label.
    #[must_use]
    pub fn new(key: LockKey, owner: Owner, lease: Lease) -> Self {
        Self { key, owner, id: ClaimId::random(), lease, label: None }
    }

    /// A new claim of a new owner.
    pub(crate) fn of_new_owner(key: LockKey, lease: Lease) -> Self {
        let [owner, id] = random_bits();
        Self { key, owner: Owner::from_bits(owner), id: ClaimId(id), lease, label: None }
    }

    /// The same claim with a label.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }
}

/// Tells one claim from every other: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId(u128);

impl ClaimId {
    /// Draws an id from the operating system's random numbers.
    #[must_use]
    pub fn random() -> Self {
        let [bits] = random_bits();
        Self(bits)
    }

    /// The bits, to be written to a store.
    #[must_use]
    pub const fn bits(self) -> u128 {
        self.0
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimId({:04x}…)", self.0 >> 112)
    }
}
