//! Family I: holding more than once.

use super::Scenario;

pub(super) const ALL: &[Scenario] = &[];
