//! Family D: keeping the lock.

use super::Scenario;

pub(super) const ALL: &[Scenario] = &[];
