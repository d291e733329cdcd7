//! Family F: the network parts, delays and cuts.

mod cut;
mod quorum;

use super::Scenario;
use crate::Failure;
use crate::lab::{Contender, Stage};

pub(super) const ALL: &[Scenario] =
    &[quorum::SPLIT_VOTE, quorum::MINORITY, quorum::SHARED_NODE, cut::IN_FLIGHT, quorum::CANCELLED];

/// A contender whose servers know its scripts, so that one request is one step: a Redis that does not know a script says
/// so, and is sent it by a second request.
async fn acquainted(stage: &Stage<'_>, name: &str) -> Result<Contender, Failure> {
    let contender = stage.contender(name).await?;
    let another = contender.on(&format!("before/{:x}", fastrand::u64(..)));
    another.acquire(stage.long()).await?.release().await?;
    Ok(contender)
}
