//! Family E: the store forgets, or goes back.

use super::Scenario;

pub(super) const ALL: &[Scenario] = &[];
