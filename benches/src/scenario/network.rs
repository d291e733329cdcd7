//! Family F: the network parts, delays and cuts.

mod cut;
mod quorum;

use super::Scenario;

pub(super) const ALL: &[Scenario] =
    &[quorum::SPLIT_VOTE, quorum::MINORITY, quorum::SHARED_NODE, cut::IN_FLIGHT, quorum::CANCELLED];
