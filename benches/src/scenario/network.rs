//! Family F: the network parts, delays and cuts.

use super::Scenario;

pub(super) const ALL: &[Scenario] = &[];
