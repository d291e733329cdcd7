//! Giving a lock back.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use lock_core::{Backend, Grant, Release, Result};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::Mutant;
use super::flawed::{Flaw, failed, flawed, ours};
use super::script::{REENTRANT, TOKEN};
use crate::Strategy;
use crate::strategy::{Kind, Seat};

pub(super) const ALL: &[Mutant] = &[NO_COMPARE, SHARED_WATCH, NIL_IS_DONE, HINCRBY];

/// What the Redis documentation of SET warns of: DEL without a look at the value.
const NO_COMPARE: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-no-compare",
        "",
        "as redis-token, but the release asks only whether there is a lock",
        Kind::Token,
        |seat| {
            let line = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end";
            TOKEN.with_release(line, "if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end").backend(seat).boxed()
        },
    ),
    flaw: "a late release frees the lock of whoever has it by then",
    caught_by: &["S18", "S24"],
};

/// redis.io, "Transactions": a WATCH is the connection's, and the next EXEC on it ends all of them.
const SHARED_WATCH: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-shared-watch",
        "",
        "as redis-token-watch, but all releases of a client watch on one multiplexed connection",
        Kind::TokenWatch,
        |seat| shared_watch(seat).boxed(),
    ),
    flaw: "the EXEC of one release ends the WATCH of another",
    caught_by: &["S21"],
};

async fn shared_watch(seat: &Seat) -> Result<Arc<dyn Backend>> {
    let url = seat.urls.first().map_or("", String::as_str);
    let client = redis::Client::open(url).map_err(|error| failed("connect", error))?;
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let redis = client.get_multiplexed_async_connection_with_config(&patient).await;
    let redis = redis.map_err(|error| failed("connect", error))?;
    flawed(SharedWatch { ours: ours(Kind::TokenWatch, seat).await?, redis })
}

struct SharedWatch {
    ours: Arc<dyn Backend>,
    redis: MultiplexedConnection,
}

#[async_trait]
impl Flaw for SharedWatch {
    fn ours(&self) -> &dyn Backend {
        &*self.ours
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        let deleted = self.delete(grant).await?;
        Ok(if deleted == Some(Some((1,))) { Release::Released } else { Release::NotHeld })
    }
}

impl SharedWatch {
    /// As `lock_redis` does it on a connection that a release has to itself: what EXEC answers, if the lock is ours.
    async fn delete(&self, grant: &Grant) -> Result<Option<Option<(i64,)>>> {
        let key = format!("hasp:{}", grant.claim.key);
        let error = |error: redis::RedisError| failed("release", error);
        let mut watch = redis::pipe();
        watch.cmd("WATCH").arg(&key).ignore().cmd("GET").arg(&key);
        let (found,): (Option<String>,) = watch.query_async(&mut self.redis.clone()).await.map_err(error)?;
        if found.is_none_or(|found| found != format!("{:032x}", grant.claim.id.bits())) {
            redis::cmd("UNWATCH").exec_async(&mut self.redis.clone()).await.map_err(error)?;
            return Ok(None);
        }
        let mut delete = redis::pipe();
        delete.atomic().cmd("DEL").arg(&key);
        delete.query_async(&mut self.redis.clone()).await.map(Some).map_err(error)
    }
}

/// An EXEC whose answer nobody looks at, as in many an article on optimistic locking.
const NIL_IS_DONE: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-nil-is-done",
        "",
        "as redis-token-watch, but whatever EXEC answers is taken for a release",
        Kind::TokenWatch,
        |seat| {
            async {
                let url = seat.urls.first().map_or("", String::as_str);
                let client = redis::Client::open(url).map_err(|error| failed("connect", error))?;
                flawed(NilIsDone { ours: ours(Kind::TokenWatch, seat).await?, client })
            }
            .boxed()
        },
    ),
    flaw: "a release that did nothing says that it has released",
    caught_by: &["S20"],
};

struct NilIsDone {
    ours: Arc<dyn Backend>,
    client: redis::Client,
}

#[async_trait]
impl Flaw for NilIsDone {
    fn ours(&self) -> &dyn Backend {
        &*self.ours
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        let redis = self.client.get_multiplexed_async_connection_with_config(&patient).await;
        let redis = redis.map_err(|error| failed("release", error))?;
        let released = SharedWatch { ours: Arc::clone(&self.ours), redis };
        released.delete(grant).await.map(|done| done.map_or(Release::NotHeld, |_| Release::Released))
    }
}

/// Redisson's unlock begins with `hincrby ... -1`, which a server that is full refuses.
const HINCRBY: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-reentrant-hincrby",
        "",
        "as redis-reentrant, but the release begins with HINCRBY",
        Kind::Reentrant,
        |seat| {
            let scripts = REENTRANT
                .with_release("if count > 1 then", "if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then")
                .with_release("  redis.call('HINCRBY', KEYS[1], ARGV[1], -1)\n", "");
            scripts.backend(seat).boxed()
        },
    ),
    flaw: "a full server refuses to take a lock back",
    caught_by: &["S26a"],
};
