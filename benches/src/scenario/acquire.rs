//! Family A: getting the lock.

use super::Scenario;

pub(super) const ALL: &[Scenario] = &[];
