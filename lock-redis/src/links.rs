//! A multiplexed connection of our own that is made anew where the client's reconnecting does not help.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::Moment;
use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, FromRedisValue, PushInfo, PushKind, RedisResult, Role};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::error::{Failure, server_code};
use crate::pinned::Pinned;
use crate::sentinel::{self, Sentinels};
use crate::subscriptions::Subscriptions;
use crate::transport::{Listen, Request, bounded, bounded_by, twice_if_refused};

/// How many requests may queue for the socket; the crate's own 50 makes 256 tasks wait for each other.
const QUEUE: usize = 1_024;

/// How many connections may be pinned at once.
const PINNED: usize = 32;

/// Where the multiplexed connection leads.
pub(crate) enum Server {
    At(Client),
    /// Wherever the master is now.
    Under(Sentinels),
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(client) => fmt::Debug::fmt(client.get_connection_info().addr(), f),
            Self::Under(sentinels) => fmt::Debug::fmt(sentinels, f),
        }
    }
}

/// Makes the multiplexed connection, and makes it anew where the client's own reconnecting does not help: when the runtime
/// that it was built on has ended (requests reconnect, pushes never come back), when it is dead without a sign (no answer
/// to anything within the limit), and when the server turned it away (the client keeps such an answer for ever). Under
/// Sentinel also whenever the server is in doubt: it is never reconnected, but found anew.
pub(crate) struct Links {
    pub(crate) server: Server,
    config: ConnectionManagerConfig,
    subscriptions: Arc<Subscriptions>,
    current: Mutex<Option<Arc<Link>>>,
    /// Held by the one who looks for the master; the others wait for what it finds.
    finding: tokio::sync::Mutex<()>,
    /// One place for each connection that may be pinned at once.
    places: Arc<Semaphore>,
}

pub(crate) struct Link {
    manager: ConnectionManager,
    life: Arc<Life>,
    /// The server that it leads to.
    client: Client,
    /// Connections to the same server that are pinned by nobody now.
    idle: Mutex<Vec<MultiplexedConnection>>,
}

#[derive(Default)]
struct Life {
    /// Given up, or without pushes because its runtime has ended.
    ended: AtomicBool,
    /// How much the server has said since it was last connected.
    answers: AtomicU64,
}

impl Links {
    pub(crate) fn new(server: Server, limit: Duration, subscriptions: Arc<Subscriptions>) -> Self {
        // Each request has its own limit, and reconnecting counts towards it, so the client neither times nor retries.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(limit))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        Self {
            server,
            config,
            subscriptions,
            current: Mutex::new(None),
            finding: tokio::sync::Mutex::new(()),
            places: Arc::new(Semaphore::new(PINNED)),
        }
    }

    pub(crate) async fn send<T: FromRedisValue + Send>(
        &self,
        request: Request<'_>,
        limit: Duration,
    ) -> Result<T, Failure> {
        let (link, left) = self.current(limit).await?;
        let mut manager = link.manager.clone();
        // Pinned here: moved from layer to layer, the request's state would be copied each time.
        let request = pin!(twice_if_refused(&mut manager, request));
        self.observe(&link, bounded_by(left, limit, request)).await
    }

    pub(crate) async fn listen(&self, listen: Listen, channels: Vec<&str>, limit: Duration) -> Result<(), Failure> {
        let (link, left) = self.current(limit).await?;
        let mut manager = link.manager.clone();
        self.observe(&link, bounded_by(left, limit, listen.on(&mut manager, channels))).await
    }

    /// A connection to itself, to the same server as the multiplexed one.
    pub(crate) async fn pin(self: &Arc<Self>, limit: Duration) -> Result<Pinned, Failure> {
        let Ok(place) = timeout(limit, Arc::clone(&self.places).acquire_owned()).await else {
            return Err(Failure::Pool(format!("none of {PINNED} came free within {limit:?}")));
        };
        let place = place.expect("it is never closed");
        let (link, limit) = self.current(limit).await?;
        let idle = link.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => {
                let config =
                    AsyncConnectionConfig::new().set_connection_timeout(Some(limit)).set_response_timeout(None);
                let opening = link.client.get_multiplexed_async_connection_with_config(&config);
                // Nothing has been sent, whatever went wrong.
                self.observe(&link, bounded(limit, opening)).await.map_err(|failure| match failure {
                    Failure::Redis(error) => Failure::Connect(error),
                    failure => Failure::Pool(format!("none could be opened: {failure:?}")),
                })?
            }
        };
        Ok(Pinned::Own { links: Arc::clone(self), link, connection, _place: place })
    }

    /// The connection, and what is left of `limit`.
    async fn current(&self, limit: Duration) -> Result<(Arc<Link>, Duration), Failure> {
        match &self.server {
            Server::At(client) => {
                let mut current = self.lock();
                if let Some(link) = alive(&current) {
                    return Ok((link, limit));
                }
                let link = Arc::new(self.build(client)?);
                *current = Some(Arc::clone(&link));
                Ok((link, limit))
            }
            Server::Under(sentinels) => {
                if let Some(link) = alive(&self.lock()) {
                    return Ok((link, limit));
                }
                let since = Moment::now();
                // Boxed, so that a request whose connection is there does not carry its size.
                let found = timeout(limit, Box::pin(self.find_master(sentinels, limit))).await;
                let link =
                    found.unwrap_or_else(|_elapsed| Err(Failure::Master(format!("not found within {limit:?}"))))?;
                let left = limit.saturating_sub(Moment::now().saturating_duration_since(since));
                if left.is_zero() {
                    return Err(Failure::Master(format!("not found within {limit:?}")));
                }
                Ok((link, left))
            }
        }
    }

    async fn find_master(&self, sentinels: &Sentinels, limit: Duration) -> Result<Arc<Link>, Failure> {
        let _turn = self.finding.lock().await;
        if let Some(link) = alive(&self.lock()) {
            return Ok(link);
        }
        // Half for the sentinels, so that something is left for their answer.
        let link = Arc::new(self.build(&sentinels.master(limit / 2).await?)?);
        if let Err(failure) = check_role(&link).await {
            // Nobody has used it, so nobody has lost it.
            link.life.ended.store(true, Ordering::Release);
            return Err(failure);
        }
        let mut current = self.lock();
        *current = Some(Arc::clone(&link));
        Ok(link)
    }

    fn build(&self, client: &Client) -> RedisResult<Link> {
        let life = Arc::new(Life::default());
        let pushes = Pushes {
            life: Arc::clone(&life),
            subscriptions: Arc::clone(&self.subscriptions),
            ends_with_connection: self.moves(),
        };
        let config = self.config.clone().set_push_sender(move |push| {
            pushes.take(push);
            Ok::<_, redis::aio::SendError>(())
        });
        let manager = ConnectionManager::new_lazy_with_config(client.clone(), config)?;
        Ok(Link { manager, life, client: client.clone(), idle: Mutex::default() })
    }

    /// Whether the server may be another one the next time.
    fn moves(&self) -> bool {
        matches!(self.server, Server::Under(_))
    }

    /// Waits for the answer, and gives the link up if it is of no use any more.
    pub(crate) async fn observe<T>(
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
            Err(Failure::Redis(error)) if self.moves() && sentinel::is_doubtful(error) => {
                tracing::debug!(%error, "the master is in doubt, and its sentinels are asked again");
                self.give_up(link);
            }
            // Perhaps the answer to its connecting and not to the request: the client would give it for ever.
            Err(Failure::Redis(error)) if !error.is_io_error() && link.life.answers.load(Ordering::Relaxed) == 0 => {
                self.give_up(link);
            }
            // The link has answered, or reconnects by itself.
            Err(_other) => {}
        }
        answer
    }

    fn give_up(&self, link: &Arc<Link>) {
        let mut current = self.lock();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            *current = None;
            drop(current);
            link.life.end(&self.subscriptions);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a server that does not take itself for a master, such as one that was told so before its sentinels say so.
async fn check_role(link: &Link) -> Result<(), Failure> {
    match redis::cmd("ROLE").query_async(&mut link.manager.clone()).await {
        Ok(Role::Primary { .. }) => Ok(()),
        Ok(_) => Err(Failure::Master("the server that the sentinels name is a replica".to_owned())),
        // A replica then refuses each request.
        Err(error) if server_code(&error) == Some("NOPERM") => Ok(()),
        Err(error) => Err(Failure::Connect(error)),
    }
}

fn alive(current: &Option<Arc<Link>>) -> Option<Arc<Link>> {
    current.as_ref().filter(|link| !link.life.ended.load(Ordering::Acquire)).map(Arc::clone)
}

impl Link {
    pub(crate) fn give_back(&self, connection: MultiplexedConnection) {
        self.idle().push(connection);
    }

    pub(crate) fn close_idle(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// The connection is not to be made again: the server behind it may not be the master then.
    ends_with_connection: bool,
}

impl Pushes {
    fn take(&self, push: PushInfo) {
        if push.kind == PushKind::Disconnection {
            self.life.answers.store(0, Ordering::Relaxed);
            if self.ends_with_connection {
                self.life.end(&self.subscriptions);
            }
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
