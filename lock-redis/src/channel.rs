//! How a lock's waiters learn that it is free.

use std::time::Duration;

use lock_core::wait::{self, Attempt};
use lock_core::{Grant, Result, Stop, WakeUp};

use crate::connection::Connection;
use crate::probe::{self, ChannelRights};

/// What the user may do on the channels of this kind of lock, and so how its waiters wait.
#[derive(Debug)]
pub(crate) struct Channel {
    rights: ChannelRights,
    sharded: bool,
    poll_interval: Duration,
}

impl Channel {
    /// Finds out what the user may do, on a channel of the same kind as that of each lock.
    pub(crate) async fn probe(connection: &Connection, sample: &str, backend: &str) -> Result<Self> {
        let rights = probe::channel(connection, sample, backend).await?;
        Ok(Self { rights, sharded: connection.is_sharded(), poll_interval: connection.config().poll_interval })
    }

    /// The channel that a release publishes on, or nothing if it may not.
    pub(crate) fn to_publish(&self, name: String) -> String {
        if self.rights.publish { name } else { String::new() }
    }

    /// The command that publishes.
    pub(crate) fn publish(&self) -> &'static str {
        probe::publish(self.sharded)
    }

    /// The subcommand of PUBSUB that counts who listens.
    pub(crate) fn count(&self) -> &'static str {
        if self.sharded { "SHARDNUMSUB" } else { "NUMSUB" }
    }

    pub(crate) fn wake_up(&self) -> WakeUp {
        if self.pushes() { WakeUp::Push } else { WakeUp::Poll }
    }

    /// Whether waiters are woken by push; if not, they poll.
    pub(crate) fn pushes(&self) -> bool {
        self.rights.publish && self.rights.subscribe
    }

    /// Waits for the lock whose releases are published on `name`.
    pub(crate) async fn wait<A, F>(
        &self,
        connection: &Connection,
        name: impl FnOnce() -> String + Send,
        stop: &Stop,
        mut attempt: A,
    ) -> Result<Option<Grant>>
    where
        A: FnMut() -> F + Send,
        F: Future<Output = Result<Attempt>> + Send,
    {
        let Some(subscriptions) = connection.subscriptions().filter(|_| self.pushes()) else {
            return wait::poll(stop, self.poll_interval, attempt).await;
        };
        let attempt = || {
            connection.tend(subscriptions);
            attempt()
        };
        wait::notified(stop, attempt, || async { Ok(connection.join(subscriptions, &name()).await) }).await
    }
}
