//! Family B: clocks that are wrong.

use super::Scenario;

pub(super) const ALL: &[Scenario] = &[];
