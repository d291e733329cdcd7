//! Family H: what sessions and leases of a store add.

use super::Scenario;

pub(super) const ALL: &[Scenario] = &[];
