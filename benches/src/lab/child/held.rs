//! Locks as a program holds them: the driver keeps them, and its guards tell of them.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{ErrorKind, FencingToken, LockGuard, Watch};
use lock_testkit::history::Hold;

use super::{Child, Client, released};
use crate::Failure;
use crate::lab::protocol::{Answer, Resource, Wanted};

/// A lock that was granted.
pub(super) struct Held {
    hold: Hold,
    watch: Watch,
    /// Taken by its release, or while it is being extended.
    guard: tokio::sync::Mutex<Option<LockGuard>>,
}

impl Child {
    pub(super) async fn acquire(
        &self,
        client: &str,
        wanted: &Wanted,
        within: Option<Duration>,
        hold: String,
    ) -> Result<Answer, Failure> {
        let Client { locks, actor } = self.client(client)?;
        let lock = wanted.on(&locks)?;
        let attempt = match &wanted.owner {
            Some(owner) => actor.acquiring_for(wanted.key.as_str(), owner.as_str()),
            None => actor.acquiring(wanted.key.as_str()),
        };
        let granted = match within {
            Some(within) => lock.acquire_within(within).await.map(Some),
            None => lock.try_acquire().await,
        };
        match granted {
            Ok(Some(guard)) => {
                let (token, watch) = (guard.fencing_token(), guard.watch());
                let held = attempt.granted(token, guard.deadline());
                let remaining = guard.remaining();
                let held = Held { hold: held, watch, guard: tokio::sync::Mutex::new(Some(guard)) };
                super::lock(&self.holds).insert(hold, Arc::new(held));
                Ok(Answer::Granted { token: token.map(FencingToken::value), remaining })
            }
            Ok(None) => {
                attempt.busy();
                Ok(Answer::Busy)
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                attempt.busy();
                Ok(Answer::error(&error))
            }
            Err(error) => {
                attempt.failed(error.effect());
                Ok(Answer::error(&error))
            }
        }
    }

    pub(super) async fn probe(&self, client: &str, wanted: &Wanted, bound: Duration) -> Result<Answer, Failure> {
        let Client { locks, actor } = self.client(client)?;
        let lock = wanted.on(&locks)?;
        let probe = actor.probing(wanted.key.as_str(), bound);
        match lock.acquire_within(bound).await {
            Ok(guard) => {
                probe.succeeded();
                Ok(released(guard.release().await?))
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                probe.gave_up();
                Ok(Answer::error(&error))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Held {
    /// What the guard says, written down as something that is acted on.
    pub(super) fn look(&self) -> Answer {
        if self.watch.is_held() {
            self.hold.affirmed(self.watch.deadline());
            Answer::Held { remaining: self.watch.remaining() }
        } else {
            self.hold.stopped();
            Answer::NotHeld
        }
    }

    pub(super) async fn lost(&self) -> Answer {
        let reason = self.watch.lost().await;
        self.hold.stopped();
        Answer::Lost { reason: format!("{reason:?}") }
    }

    pub(super) async fn extend(&self, ttl: Duration) -> Result<Answer, Failure> {
        let guard = self.guard.lock().await;
        let guard = guard.as_ref().ok_or("it has been released before")?;
        match guard.extend(ttl).await {
            Ok(()) => {
                self.hold.renewed(guard.deadline());
                Ok(Answer::Renewed { remaining: guard.remaining() })
            }
            Err(error) => Ok(Answer::error(&error)),
        }
    }

    pub(super) async fn release(&self) -> Result<Answer, Failure> {
        let guard = self.guard.lock().await.take().ok_or("it has been released before")?;
        self.look();
        self.hold.releasing();
        match guard.release().await {
            Ok(answer) => {
                self.hold.released(answer);
                Ok(released(answer))
            }
            Err(error) => {
                self.hold.release_failed(error.effect());
                Ok(Answer::error(&error))
            }
        }
    }

    pub(super) async fn drop_guard(&self) -> Answer {
        self.hold.releasing();
        drop(self.guard.lock().await.take());
        Answer::Done
    }

    /// Writes a resource by right of the guard, if that says that it is held.
    pub(super) async fn write(&self, resource: &Resource) -> Result<Answer, Failure> {
        let token = self.token().await;
        if self.look() == Answer::NotHeld {
            return Ok(Answer::NotHeld);
        }
        let accepted = resource.write_held(&self.hold, token).await?;
        Ok(if accepted { Answer::Done } else { Answer::Refused })
    }

    pub(super) async fn token(&self) -> Option<FencingToken> {
        self.guard.lock().await.as_ref().and_then(LockGuard::fencing_token)
    }
}
