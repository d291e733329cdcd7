//! The controls: what must hold, or the lab itself is at fault.

use super::Scenario;

pub(super) const ALL: &[Scenario] = &[];
