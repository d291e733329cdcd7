//! Family G: waiting and waking up.

use super::Scenario;

pub(super) const ALL: &[Scenario] = &[];
