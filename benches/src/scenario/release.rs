//! Family C: a lock is given back late, twice, or by somebody who has lost it.

mod late;
mod majority;
mod refused;
mod reply;
mod watch;

use lock_testkit::fault::Request;

use super::Scenario;
use crate::Failure;
use crate::lab::{Client, Held, Stage};
use crate::strategy::Kind;

pub(super) const ALL: &[Scenario] = &[
    late::LATE_RELEASE,
    late::GET_THEN_DEL,
    watch::PINNED,
    watch::SHARED,
    reply::LOST_REPLY,
    late::HONEST,
    majority::LEFT_BEHIND,
    refused::FULL,
    refused::CANNOT_SAVE,
    refused::NO_MASTER,
];

/// Who holds a lock more than once, where that is possible.
const OWNER: u128 = 7;

/// Acquires with a long lease; where one owner may hold a lock more than once, twice, so that a release has a count to change.
async fn hold_often(stage: &Stage<'_>, client: &Client) -> Result<Vec<Held>, Failure> {
    let (times, owner) = if stage.kind() == Kind::Reentrant { (2, Some(OWNER)) } else { (1, None) };
    let mut holds = Vec::new();
    for _ in 0..times {
        holds.push(client.try_acquire_for(stage.long(), owner).await?.ok_or("a lock that nobody has is refused")?);
    }
    Ok(holds)
}

/// What ends a release of this cell's lock.
pub(super) fn last_step(stage: &Stage<'_>) -> Request {
    let names_the_lock = Request::any().with_part(&stage.key);
    Request::matching(move |arguments| {
        let is = |name: &[u8]| arguments.first().is_some_and(|first| first.eq_ignore_ascii_case(name));
        let ends = [&b"DEL"[..], b"UNLINK", b"EVALSHA", b"EVAL", b"Txn", b"delete"].into_iter().any(is);
        is(b"EXEC") || (ends && names_the_lock.matches(arguments))
    })
}
