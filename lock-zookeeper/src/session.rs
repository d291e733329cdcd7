use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lock_core::{LossSignal, Moment};
use tokio::time::{MissedTickBehavior, interval, timeout};
use zookeeper_client::{Client, Error as ClientError, SessionState, StateWatcher};

use crate::error::{Failure, ends_session, is_answer};
use crate::proof::Proofs;
use crate::quiet::Quiet;

/// One session: it lives as long as the server says so, and is not revived.
pub(crate) struct Session {
    /// None once it is closed: the client library ends a session when the last handle on it is dropped.
    client: Mutex<Option<Arc<Client>>>,
    id: i64,
    timeout: Duration,
    request_limit: Duration,
    proofs: Mutex<Proofs>,
    quiet: Quiet,
    over: AtomicBool,
    loss: LossSignal,
}

impl Session {
    /// The session of a client whose connecting began at `made`.
    pub(crate) fn start(client: Client, made: Moment, request_limit: Duration) -> Arc<Self> {
        let (timeout, states) = (client.session_timeout(), client.state_watcher());
        let session = Arc::new(Self {
            id: client.session_id().0,
            client: Mutex::new(Some(Arc::new(client))),
            timeout,
            request_limit,
            proofs: Mutex::new(Proofs::new(timeout, made)),
            quiet: Quiet::default(),
            over: AtomicBool::new(false),
            loss: LossSignal::new(),
        });
        tokio::spawn(attend(Arc::downgrade(&session), states, timeout / 8));
        session
    }

    /// The server's number for it, which is the owner of its ephemeral nodes.
    pub(crate) const fn id(&self) -> i64 {
        self.id
    }

    /// The timeout that was negotiated with the server.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether it cannot be used any more. It says no more about what the session held than the loss signal does.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Fired when the server has ended the session.
    pub(crate) const fn loss(&self) -> &LossSignal {
        &self.loss
    }

    /// The ttl, counted from `sent_at`, that a write or `sync` sent then and answered has proven.
    pub(crate) fn ttl(&self, sent_at: Moment) -> Duration {
        self.proofs().ttl(sent_at)
    }

    /// The paths on which it was alone in line.
    pub(crate) const fn quiet(&self) -> &Quiet {
        &self.quiet
    }

    /// Waits for the connection and begins a call. While there is none, requests would queue without bound and be sent later,
    /// also those whose futures were dropped; so none is made then.
    pub(crate) async fn call(&self) -> Result<Call<'_>, Failure> {
        let client = self.client().clone().ok_or(ClientError::ClientClosed)?;
        let until = Moment::now().saturating_add(self.request_limit);
        let mut states = client.state_watcher();
        let mut state = states.peek_state();
        loop {
            match state {
                SessionState::SyncConnected | SessionState::ConnectedReadOnly => break,
                SessionState::Disconnected => {
                    let changed = timeout(until.remaining(), states.changed()).await;
                    state = changed.map_err(|_elapsed| Failure::Disconnected(self.request_limit))?;
                }
                SessionState::Expired => return Err(self.note_end(ClientError::SessionExpired)),
                SessionState::AuthFailed => return Err(self.note_end(ClientError::AuthFailed)),
                SessionState::Closed => return Err(self.note_end(ClientError::ClientClosed)),
            }
        }
        Ok(Call { session: self, client, sent_at: Moment::now(), until })
    }

    /// Ends the session, and with it all its nodes.
    pub(crate) async fn close(&self) -> Result<(), Failure> {
        let Some(client) = self.client().take() else { return Ok(()) };
        self.over.store(true, Ordering::Release);
        let mut states = client.state_watcher();
        drop(client);
        let ended = async {
            while !states.peek_state().is_terminated() {
                states.changed().await;
            }
        };
        timeout(self.request_limit, ended).await.map_err(|_elapsed| Failure::NotClosed(self.request_limit))
    }

    fn note_end(&self, error: ClientError) -> Failure {
        self.over.store(true, Ordering::Release);
        if error == ClientError::SessionExpired {
            self.loss.fire();
        }
        error.into()
    }

    fn client(&self) -> MutexGuard<'_, Option<Arc<Client>>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn proofs(&self) -> MutexGuard<'_, Proofs> {
        self.proofs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &format_args!("{:#x}", self.id))
            .field("timeout", &self.timeout)
            .field("over", &self.is_over())
            .finish_non_exhaustive()
    }
}

/// Requests that are sent together, on a connection that stands, within one limit.
///
/// The client library sends a request when its method is called, in the order of the calls, and not when its future is polled.
pub(crate) struct Call<'a> {
    session: &'a Session,
    client: Arc<Client>,
    /// Just before anything was sent.
    pub(crate) sent_at: Moment,
    until: Moment,
}

impl Call<'_> {
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Waits for one reply.
    pub(crate) async fn reply<T>(&self, reply: impl Future<Output = Result<T, ClientError>>) -> Result<T, Failure> {
        self.check(self.replies(reply).await?)
    }

    /// Waits for several replies, joined, each to be [checked](Call::check).
    pub(crate) async fn replies<T>(&self, replies: impl Future<Output = T>) -> Result<T, Failure> {
        let limit = self.session.request_limit;
        timeout(self.until.remaining(), replies).await.map_err(|_elapsed| Failure::Limit(limit))
    }

    /// Notes what a reply says about the session.
    pub(crate) fn check<T>(&self, reply: Result<T, ClientError>) -> Result<T, Failure> {
        match reply {
            Ok(value) => {
                self.session.proofs().record(self.sent_at);
                Ok(value)
            }
            Err(error) if is_answer(&error) => {
                self.session.proofs().record(self.sent_at);
                Err(error.into())
            }
            Err(error) if ends_session(&error) => Err(self.session.note_end(error)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Watches over a session for as long as somebody has it: says when it has ended, and lets no silence arise, because after
/// one the server's word is worth less (see [`Proofs`]). The requests replace the client's own pings, which it does not tell
/// of.
async fn attend(session: Weak<Session>, mut states: StateWatcher, every: Duration) {
    let mut beats = interval(every.max(Duration::from_millis(1)));
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let state = tokio::select! {
            state = states.changed() => state,
            _ = beats.tick() => states.peek_state(),
        };
        let Some(session) = session.upgrade() else { return };
        match state {
            SessionState::SyncConnected | SessionState::ConnectedReadOnly => {
                if let Err(failure) = beat(&session).await {
                    tracing::debug!(?session, ?failure, "a session's heartbeat was not answered");
                }
            }
            SessionState::Disconnected => {}
            SessionState::Expired => return drop(session.note_end(ClientError::SessionExpired)),
            SessionState::AuthFailed => return drop(session.note_end(ClientError::AuthFailed)),
            SessionState::Closed => return drop(session.note_end(ClientError::ClientClosed)),
        }
    }
}

async fn beat(session: &Session) -> Result<(), Failure> {
    let call = session.call().await?;
    call.reply(call.client().check_stat("/")).await.map(drop)
}
