//! Locks that some replicas have, too, before they count (redis.io, "WAIT").

use std::slice;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Effect, Error, ErrorKind, Release, Result};

use crate::connection::Connection;
use crate::error::{Failure, explain};
use crate::pinned::Pinned;
use crate::script::{Call, Script};
use crate::transport::Request;

/// How many replicas must have a lock before it counts, and how long they may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MinReplicas {
    /// How many; at least one.
    pub count: u32,
    /// How long they may take; at least a millisecond.
    pub limit: Duration,
}

impl MinReplicas {
    pub(crate) const fn new(count: u32, limit: Duration) -> Self {
        Self { count, limit }
    }

    /// Whether it can be kept: by its values, and by `connection`.
    pub(crate) async fn check(&self, connection: &Connection, backend: &str) -> Result<()> {
        let refused = |kind, says: &str| Err(Error::new(kind, Effect::None, backend, "connect", says));
        if self.count == 0 || self.limit < Duration::from_millis(1) {
            let says = "`min_replicas` has no count, or a limit below 1 ms, and WAIT would wait for ever; give it both";
            return refused(ErrorKind::InvalidInput, says);
        }
        let pinned = match connection.pin("").await {
            Ok(Some(pinned)) => pinned,
            Ok(None) => {
                let says = "`min_replicas` needs a connection to itself; add a pool (`Connection::with_pool`)";
                return refused(ErrorKind::Unsupported, says);
            }
            Err(failure) => return Err(explain(&failure, backend, "connect")),
        };
        // It answers at once. A user who may not ask is told so now, and not after each grant.
        self.wait(pinned, connection, "0").await.map(drop).map_err(|failure| explain(&failure, backend, "connect"))
    }

    /// Runs a script that acquires. What it has granted and too few replicas have is undone by `undo`.
    pub(crate) async fn acquire(
        &self,
        connection: &Connection,
        script: &Script,
        call: &Call<'_>,
        undo: impl Future<Output = Result<Release>> + Send,
    ) -> std::result::Result<i64, Failure> {
        let mut answers = self.run(connection, script, slice::from_ref(call)).await;
        let answer = answers.pop().expect("there is an answer to the call");
        if let Err(Failure::Replicas(says)) = &answer {
            match undo.await {
                Ok(_) => return Err(Failure::Undone(says.clone())),
                // The effect stays unknown, so the driver undoes it.
                Err(error) => tracing::debug!(%error, "a grant that too few replicas have is not undone yet"),
            }
        }
        answer
    }

    /// Runs a script once per call, and then waits for the replicas. Where they do not have it in time, each answer above
    /// zero becomes a failure, although the master has it.
    pub(crate) async fn run(
        &self,
        connection: &Connection,
        script: &Script,
        calls: &[Call<'_>],
    ) -> Vec<std::result::Result<i64, Failure>> {
        let Some(cluster) = connection.cluster() else { return self.run_on_one(connection, script, calls).await };
        // Each has a node of its own.
        let answers = join_all(calls.iter().map(async |call| {
            let mut answers = self.run_on_one(connection, script, slice::from_ref(call)).await;
            let answer = answers.pop().expect("there is an answer to the call");
            match answer {
                Err(Failure::Redis(error)) if error.redirect_node().is_some() => {
                    cluster.failed(call.keys[0], &Failure::Redis(error));
                    Err(Failure::Master("its slot is on the way to another node".to_owned()))
                }
                Err(failure) => {
                    cluster.failed(call.keys[0], &failure);
                    Err(failure)
                }
                answer => answer,
            }
        }));
        answers.await
    }

    async fn run_on_one(
        &self,
        connection: &Connection,
        script: &Script,
        calls: &[Call<'_>],
    ) -> Vec<std::result::Result<i64, Failure>> {
        let Some(first) = calls.first() else { return Vec::new() };
        let mut pinned = match connection.pin(first.keys.first().copied().unwrap_or_default()).await {
            Ok(Some(pinned)) => pinned,
            Ok(None) => return vec![Err(Failure::Pool("there is none".to_owned())); calls.len()],
            Err(failure) => return vec![Err(failure); calls.len()],
        };
        let mut answers = connection.run_all_on(&mut pinned, script, calls).await;
        if !answers.iter().any(|answer| matches!(answer, Ok(1..))) {
            pinned.end(answers.iter().all(Result::is_ok));
            return answers;
        }
        let says = match self.wait(pinned, connection, &self.count.to_string()).await {
            Ok(replicas) if replicas >= self.count => return answers,
            Ok(replicas) => format!("{replicas} of {} had it within {:?}", self.count, self.limit),
            Err(failure) => format!("WAIT failed: {}", explain(&failure, "redis", "wait")),
        };
        for answer in answers.iter_mut().filter(|answer| matches!(answer, Ok(1..))) {
            *answer = Err(Failure::Replicas(says.clone()));
        }
        answers
    }

    async fn wait(
        &self,
        mut pinned: Pinned,
        connection: &Connection,
        count: &str,
    ) -> std::result::Result<u32, Failure> {
        let millis = self.limit.as_nanos().div_ceil(1_000_000);
        let mut wait = redis::cmd("WAIT");
        wait.arg(count).arg(u64::try_from(millis).unwrap_or(u64::MAX));
        let limit = self.limit.saturating_add(connection.config().request_limit);
        let answer = pinned.send(Request::One(&wait), limit).await;
        pinned.end(answer.is_ok());
        answer
    }
}
