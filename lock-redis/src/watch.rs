//! Unlocking without a script.

use std::time::Duration;

use deadpool_redis::{Connection, Pool};

use crate::error::Failure;
use crate::transport::{bounded, take};

/// How often the key may change under us before we give up: a late renewal of our own changes it too.
const TRIES: usize = 5;

/// Deletes `key` if it holds `value`, and publishes on `channel` unless that is empty. Answers 1, or 0 if it is not ours.
///
/// The connection belongs to this call alone from `WATCH` to `EXEC` (redis.io, "Transactions": optimistic locking).
pub(crate) async fn unlock(
    pool: &Pool,
    limit: Duration,
    key: &str,
    value: &str,
    channel: &str,
) -> Result<i64, Failure> {
    let mut connection = take(pool, limit).await?;
    let answer = unlock_on(&mut connection, limit, key, value, channel).await;
    if answer.is_err() {
        // It may still watch, or may not answer: it is not given to the next one.
        drop(Connection::take(connection));
    }
    answer
}

async fn unlock_on(
    connection: &mut Connection,
    limit: Duration,
    key: &str,
    value: &str,
    channel: &str,
) -> Result<i64, Failure> {
    let mut transaction = redis::pipe();
    transaction.atomic().cmd("DEL").arg(key);
    if !channel.is_empty() {
        transaction.cmd("PUBLISH").arg(channel).arg("0");
    }
    let mut watch = redis::pipe();
    watch.cmd("WATCH").arg(key).ignore().cmd("GET").arg(key);
    for _ in 0..TRIES {
        let (found,): (Option<Vec<u8>>,) = bounded(limit, watch.query_async(connection)).await?;
        if found.as_deref() != Some(value.as_bytes()) {
            bounded(limit, redis::cmd("UNWATCH").exec_async(connection)).await?;
            return Ok(0);
        }
        let done: Option<Vec<i64>> = bounded(limit, transaction.query_async(connection)).await?;
        if let Some(deleted) = done.and_then(|replies| replies.first().copied()) {
            return Ok(deleted);
        }
        // Nil: the key was changed or has expired since WATCH, so it is read again.
    }
    Err(Failure::Pool(format!("the key changed {TRIES} times while it was being deleted")))
}
