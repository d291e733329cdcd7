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

/// Has the lock held once before, so that the servers know the scripts and ZooKeeper has a path for it. Else the first
/// request that takes the lock is refused, and another is sent.
pub(super) async fn warm_up(stage: &Stage<'_>, client: &Client) -> Result<(), Failure> {
    client.acquire(stage.short()).await?.release().await?;
    Ok(())
}

/// The request that takes the lock: the first that writes the lock's name, or in a queue the one that takes a place.
pub(super) fn takes_the_lock(stage: &Stage<'_>) -> Request {
    Request::matching(|arguments| {
        let is = |name: &[u8]| arguments.first().is_some_and(|first| first.eq_ignore_ascii_case(name));
        [&b"SETNX"[..], b"SET", b"EVALSHA", b"EVAL", b"Txn", b"create2"].into_iter().any(is)
    })
    .with_part(&stage.key)
}

/// The request with which the lease begins: `SetnxExpire` sends one for it, else it is the one that takes the lock.
fn begins_the_lease(stage: &Stage<'_>) -> Request {
    match stage.kind() {
        Kind::SetnxExpire => Request::command("EXPIRE").with_part(&stage.key),
        _ => takes_the_lock(stage),
    }
}
