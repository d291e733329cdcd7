//! Family A: getting the lock.

mod crash;
mod foreign;
mod late;
mod reply;
mod ttl;

use lock_testkit::fault::Request;

use super::Scenario;
use crate::Failure;
use crate::lab::{Client, Stage};
use crate::strategy::Kind;

pub(super) const ALL: &[Scenario] = &[
    crash::CRASH,
    crash::LOST_EXPIRE,
    ttl::HALF_A_SECOND,
    reply::LOST_REPLY,
    late::LATE_ACQUIRE,
    reply::SLOW_REPLY,
    foreign::SAME_OWNER,
    foreign::FOREIGN_VALUE,
];

/// Has the lock been held before: until then ZooKeeper has no path for it, and refuses the first request that takes it.
pub(super) async fn make_path(stage: &Stage<'_>, client: &Client) -> Result<(), Failure> {
    if stage.kind() == Kind::ZooKeeper {
        client.acquire(stage.short()).await?.release().await?;
    }
    Ok(())
}

/// The request that takes the lock: the first that writes the lock's name, or on a queue the one that takes a place in it.
/// On ZooKeeper the path must be there ([`make_path`]).
pub(super) fn takes_the_lock(stage: &Stage<'_>) -> Request {
    Request::matching(|arguments| {
        let is = |name: &[u8]| arguments.first().is_some_and(|first| first.eq_ignore_ascii_case(name));
        [&b"SETNX"[..], b"SET", b"EVALSHA", b"EVAL", b"Txn", b"create2"].into_iter().any(is)
    })
    .with_part(stage.mark())
}
