//! A connection that nobody else uses meanwhile, for what blocks it.

use std::sync::Arc;
use std::time::Duration;

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::Failure;
use crate::links::{Link, Links};
use crate::transport::{Request, bounded};

pub(crate) enum Pinned {
    /// One of our own, to the server that the multiplexed one leads to.
    Own { links: Arc<Links>, link: Arc<Link>, connection: MultiplexedConnection, _place: OwnedSemaphorePermit },
    /// One of the user's pool.
    Pool(deadpool_redis::Connection),
}

impl Pinned {
    pub(crate) async fn send<T: FromRedisValue + Send>(
        &mut self,
        request: Request<'_>,
        limit: Duration,
    ) -> Result<T, Failure> {
        match self {
            Self::Own { links, link, connection, .. } => {
                links.observe(link, bounded(limit, request.on(connection))).await
            }
            Self::Pool(connection) => bounded(limit, request.on(connection)).await,
        }
    }

    /// Gives it to the next one, if everything that was sent has been answered. If not, it is closed, because an answer may
    /// still come; and so are those that nobody uses, because they may be as dead.
    pub(crate) fn end(self, answered: bool) {
        match self {
            Self::Own { link, connection, .. } if answered => link.give_back(connection),
            Self::Own { link, .. } => link.close_idle(),
            Self::Pool(connection) if answered => drop(connection),
            Self::Pool(connection) => drop(deadpool_redis::Connection::take(connection)),
        }
    }
}
