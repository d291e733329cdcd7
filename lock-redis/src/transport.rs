//! How requests reach the server, each within a limit.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::Pool;
use redis::aio::{ConnectionLike, ConnectionManager};
use redis::{Cmd, FromRedisValue, Pipeline, RedisResult};
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::error::Failure;
use crate::links::Links;
use crate::pinned::Pinned;

pub(crate) struct Transport {
    way: Way,
    limit: Duration,
}

pub(crate) enum Way {
    /// A multiplexed connection of our own, with pushes.
    Own(Arc<Links>),
    /// A user's multiplexed connection.
    Manager(ConnectionManager),
    /// A connection of its own for each request.
    Pool(Pool),
    /// Connections of our own to each master of a cluster.
    Cluster(Box<Cluster>),
}

/// What is sent in one go.
#[derive(Clone, Copy)]
pub(crate) enum Request<'a> {
    One(&'a Cmd),
    Many(&'a Pipeline),
}

impl Request<'_> {
    pub(crate) async fn on<T: FromRedisValue + Send>(
        self,
        connection: &mut (impl ConnectionLike + Send),
    ) -> RedisResult<T> {
        match self {
            Self::One(command) => command.query_async(connection).await,
            Self::Many(pipeline) => pipeline.query_async(connection).await,
        }
    }
}

impl Transport {
    pub(crate) const fn new(way: Way, limit: Duration) -> Self {
        Self { way, limit }
    }

    pub(crate) async fn send<T: FromRedisValue + Send>(&self, request: Request<'_>) -> Result<T, Failure> {
        match &self.way {
            Way::Own(links) => links.send(request, self.limit).await,
            Way::Manager(manager) => bounded(self.limit, twice_if_refused(&mut manager.clone(), request)).await,
            // Boxed, so that the other ways do not carry its size.
            Way::Pool(pool) => Box::pin(self.send_pooled(pool, request)).await,
            Way::Cluster(cluster) => Box::pin(cluster.send(request)).await,
        }
    }

    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        match &self.way {
            Way::Cluster(cluster) => Some(cluster),
            Way::Own(_) | Way::Manager(_) | Way::Pool(_) => None,
        }
    }

    async fn send_pooled<T: FromRedisValue + Send>(&self, pool: &Pool, request: Request<'_>) -> Result<T, Failure> {
        let mut connection = take(pool, self.limit).await?;
        let answer = bounded(self.limit, request.on(&mut connection)).await;
        if matches!(&answer, Err(Failure::Limit(_))) {
            // A connection that does not answer is not given to the next one.
            drop(deadpool_redis::Connection::take(connection));
        }
        answer
    }

    /// A connection to itself, to the server that has `key`; none where only a user's multiplexed one is at hand.
    pub(crate) async fn pin(&self, key: &str) -> Result<Option<Pinned>, Failure> {
        match &self.way {
            Way::Own(links) => links.pin(self.limit).await.map(Some),
            Way::Pool(pool) => take(pool, self.limit).await.map(Pinned::Pool).map(Some),
            Way::Manager(_) => Ok(None),
            Way::Cluster(cluster) => cluster.pin(key).await.map(Some),
        }
    }

    pub(crate) async fn subscribe(&self, channels: &[Arc<str>]) -> Result<(), Failure> {
        self.listen(Listen::To, channels).await
    }

    pub(crate) async fn unsubscribe(&self, channels: &[Arc<str>]) -> Result<(), Failure> {
        self.listen(Listen::NoMore, channels).await
    }

    async fn listen(&self, listen: Listen, channels: &[Arc<str>]) -> Result<(), Failure> {
        let channels: Vec<&str> = channels.iter().map(AsRef::as_ref).collect();
        match &self.way {
            Way::Own(links) => links.listen(listen, channels, self.limit).await,
            Way::Manager(manager) => bounded(self.limit, listen.on(&mut manager.clone(), channels)).await,
            Way::Cluster(cluster) => cluster.listen(listen, &channels).await,
            Way::Pool(_) => Err(Failure::Pool("its connections are not for subscriptions".to_owned())),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Listen {
    To,
    NoMore,
}

impl Listen {
    pub(crate) async fn on(self, manager: &mut ConnectionManager, channels: Vec<&str>) -> RedisResult<()> {
        match self {
            Self::To => manager.subscribe(channels).await,
            Self::NoMore => manager.unsubscribe(channels).await,
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Way::Own(links) => f.debug_tuple("Own").field(&links.server).finish(),
            Way::Manager(_) => f.write_str("Manager"),
            Way::Pool(pool) => f.debug_tuple("Pool").field(&pool.status()).finish(),
            Way::Cluster(cluster) => fmt::Debug::fmt(cluster, f),
        }
    }
}

/// Takes a connection out of `pool`, within `limit`.
pub(crate) async fn take(pool: &Pool, limit: Duration) -> Result<deadpool_redis::Connection, Failure> {
    match timeout(limit, pool.get()).await {
        Ok(connection) => Ok(connection?),
        Err(_elapsed) => Err(Failure::Pool(format!("none came free within {limit:?}"))),
    }
}

pub(crate) async fn bounded<T>(
    limit: Duration,
    request: impl Future<Output = RedisResult<T>> + Send,
) -> Result<T, Failure> {
    bounded_by(limit, limit, request).await
}

/// The same where only this much is left of the limit.
pub(crate) async fn bounded_by<T>(
    left: Duration,
    limit: Duration,
    request: impl Future<Output = RedisResult<T>> + Send,
) -> Result<T, Failure> {
    match timeout(left, request).await {
        Ok(answer) => Ok(answer?),
        Err(_elapsed) => Err(Failure::Limit(limit)),
    }
}

/// The manager answers with the outcome of its last attempt to connect, however long ago that was, and then starts
/// another. As nothing was sent, the request may go again, and waits for that one.
pub(crate) async fn twice_if_refused<T: FromRedisValue + Send>(
    manager: &mut ConnectionManager,
    request: Request<'_>,
) -> RedisResult<T> {
    match request.on(manager).await {
        Err(error) if error.is_connection_refusal() => request.on(manager).await,
        answer => answer,
    }
}
