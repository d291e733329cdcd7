//! How requests reach the server, each within a limit.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_redis::Pool;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, FromRedisValue, Pipeline, PushInfo, PushKind, RedisResult};
use tokio::time::timeout;

use crate::error::Failure;
use crate::subscriptions::Subscriptions;

/// How many requests may queue for the socket; the crate's own 50 makes 256 tasks wait for each other.
const QUEUE: usize = 1_024;

pub(crate) struct Transport {
    way: Way,
    limit: Duration,
}

pub(crate) enum Way {
    /// A multiplexed connection of our own, with pushes.
    Own(Box<Links>),
    /// A user's multiplexed connection.
    Manager(ConnectionManager),
    /// A connection of its own for each request.
    Pool(Pool),
}

/// What is sent in one go.
#[derive(Clone, Copy)]
pub(crate) enum Request<'a> {
    One(&'a Cmd),
    Many(&'a Pipeline),
}

impl Request<'_> {
    async fn on<T: FromRedisValue + Send>(self, connection: &mut (impl ConnectionLike + Send)) -> RedisResult<T> {
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
            Way::Own(links) => {
                let link = links.current()?;
                let mut manager = link.manager.clone();
                // Pinned here: moved from layer to layer, the request's state would be copied each time.
                let request = pin!(twice_if_refused(&mut manager, request));
                links.observe(&link, bounded(self.limit, request)).await
            }
            Way::Manager(manager) => bounded(self.limit, twice_if_refused(&mut manager.clone(), request)).await,
            // Boxed, so that the other ways do not carry its size.
            Way::Pool(pool) => Box::pin(self.send_pooled(pool, request)).await,
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

    pub(crate) async fn subscribe(&self, channels: &[Arc<str>]) -> Result<(), Failure> {
        self.listen(Listen::To, channels).await
    }

    pub(crate) async fn unsubscribe(&self, channels: &[Arc<str>]) -> Result<(), Failure> {
        self.listen(Listen::NoMore, channels).await
    }

    async fn listen(&self, listen: Listen, channels: &[Arc<str>]) -> Result<(), Failure> {
        let channels: Vec<&str> = channels.iter().map(AsRef::as_ref).collect();
        match &self.way {
            Way::Own(links) => {
                let link = links.current()?;
                let mut manager = link.manager.clone();
                links.observe(&link, bounded(self.limit, listen.on(&mut manager, channels))).await
            }
            Way::Manager(manager) => bounded(self.limit, listen.on(&mut manager.clone(), channels)).await,
            Way::Pool(_) => Err(Failure::Pool("its connections are not for subscriptions".to_owned())),
        }
    }
}

#[derive(Clone, Copy)]
enum Listen {
    To,
    NoMore,
}

impl Listen {
    async fn on(self, manager: &mut ConnectionManager, channels: Vec<&str>) -> RedisResult<()> {
        match self {
            Self::To => manager.subscribe(channels).await,
            Self::NoMore => manager.unsubscribe(channels).await,
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Way::Own(links) => f.debug_tuple("Own").field(links.client.get_connection_info().addr()).finish(),
            Way::Manager(_) => f.write_str("Manager"),
            Way::Pool(pool) => f.debug_tuple("Pool").field(&pool.status()).finish(),
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
    match timeout(limit, request).await {
        Ok(answer) => Ok(answer?),
        Err(_elapsed) => Err(Failure::Limit(limit)),
    }
}

/// The manager answers with the outcome of its last attempt to connect, however long ago that was, and then starts
/// another. As nothing was sent, the request may go again, and waits for that one.
async fn twice_if_refused<T: FromRedisValue + Send>(
    manager: &mut ConnectionManager,
    request: Request<'_>,
) -> RedisResult<T> {
    match request.on(manager).await {
        Err(error) if error.is_connection_refusal() => request.on(manager).await,
        answer => answer,
    }
}

/// Makes the multiplexed connection, and makes it anew where the client's own reconnecting does not help: when the runtime
/// that it was built on has ended (requests reconnect, pushes never come back), when it is dead without a sign (no answer
/// to anything within the limit), and when the server turned it away (the client keeps such an answer for ever).
pub(crate) struct Links {
    client: Client,
    config: ConnectionManagerConfig,
    subscriptions: Arc<Subscriptions>,
    current: Mutex<Option<Arc<Link>>>,
}

struct Link {
    manager: ConnectionManager,
    life: Arc<Life>,
}

#[derive(Default)]
struct Life {
    /// Given up, or without pushes because its runtime has ended.
    ended: AtomicBool,
    /// How much the server has said since it was last connected.
    answers: AtomicU64,
}

impl Links {
    pub(crate) fn new(client: Client, limit: Duration, subscriptions: Arc<Subscriptions>) -> Self {
        // Each request has its own limit, and reconnecting counts towards it, so the client neither times nor retries.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(limit))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        Self { client, config, subscriptions, current: Mutex::new(None) }
    }

    fn current(&self) -> RedisResult<Arc<Link>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = current.as_ref().filter(|link| !link.life.ended.load(Ordering::Acquire)) {
            return Ok(Arc::clone(link));
        }
        let link = Arc::new(self.build()?);
        *current = Some(Arc::clone(&link));
        Ok(link)
    }

    fn build(&self) -> RedisResult<Link> {
        let life = Arc::new(Life::default());
        let pushes = Pushes { life: Arc::clone(&life), subscriptions: Arc::clone(&self.subscriptions) };
        let config = self.config.clone().set_push_sender(move |push| {
            pushes.take(push);
            Ok::<_, redis::aio::SendError>(())
        });
        let manager = ConnectionManager::new_lazy_with_config(self.client.clone(), config)?;
        Ok(Link { manager, life })
    }

    /// Waits for the answer, and gives the link up if it is of no use any more.
    async fn observe<T>(
        &self,
        link: &Arc<Link>,
        answer: impl Future<Output = Result<T, Failure>> + Send,
    ) -> Result<T, Failure> {
        let answers = link.life.answers.load(Ordering::Relaxed);
        let answer = answer.await;
        match &answer {
            Ok(_) => {
                link.life.answers.fetch_add(1, Ordering::Relaxed);
            }
            Err(Failure::Limit(limit)) if link.life.answers.load(Ordering::Relaxed) == answers => {
                tracing::warn!(?limit, "the connection to Redis answers nothing, and is replaced");
                self.give_up(link);
            }
            // Perhaps the answer to its connecting and not to the request: the client would give it for ever.
            Err(Failure::Redis(error)) if !error.is_io_error() && link.life.answers.load(Ordering::Relaxed) == 0 => {
                self.give_up(link);
            }
            // The link has answered, or reconnects by itself.
            Err(Failure::Redis(_) | Failure::Limit(_) | Failure::Connect(_) | Failure::Pool(_)) => {}
        }
        answer
    }

    fn give_up(&self, link: &Arc<Link>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            *current = None;
            drop(current);
            link.life.end(&self.subscriptions);
        }
    }
}

impl Life {
    fn end(&self, subscriptions: &Subscriptions) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            subscriptions.connection_lost();
        }
    }
}

/// Lives in the closure that takes the pushes, which is dropped when the runtime that carries them ends.
struct Pushes {
    life: Arc<Life>,
    subscriptions: Arc<Subscriptions>,
}

impl Pushes {
    fn take(&self, push: PushInfo) {
        if push.kind == PushKind::Disconnection {
            self.life.answers.store(0, Ordering::Relaxed);
        } else {
            self.life.answers.fetch_add(1, Ordering::Relaxed);
        }
        if !self.life.ended.load(Ordering::Acquire) {
            self.subscriptions.pushed(push);
        }
    }
}

impl Drop for Pushes {
    fn drop(&mut self) {
        self.life.end(&self.subscriptions);
    }
}
