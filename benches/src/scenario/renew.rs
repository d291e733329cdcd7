//! Family D: keeping the lock.

mod expired;
mod majority;
mod outlive;
mod reply;
mod starved;

use std::time::Duration;

use lock_testkit::fault::Request;

use super::Scenario;
use crate::lab::Stage;
use crate::strategy::Kind;

pub(super) const ALL: &[Scenario] =
    &[starved::STARVED, outlive::OUTLIVE, expired::ANOTHERS, reply::LATE_REPLY, expired::EXPIRED, majority::EXTEND];

/// A ttl that does harm if it is given to what is not one's own: long, where the store takes a ttl for each lock.
fn harmful_ttl(stage: &Stage<'_>) -> Duration {
    if stage.kind() == Kind::ZooKeeper { stage.short_ttl() } else { stage.long().ttl() }
}

/// Another lock of the same cell, and the requests that name it: two scenes can be played at the same time.
fn lock_for(stage: &Stage<'_>, scene: &str) -> (String, Request) {
    (format!("{}-{scene}", stage.key), Request::any().with_part(format!("{}-{scene}", &stage.key)))
}
