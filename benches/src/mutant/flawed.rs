//! The one shape of all mutants: a backend of ours, some calls of which do something else.

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{
    Backend, Claim, Effect, Error, ErrorKind, Grant, Guarantees, Inspection, LockKey, Release, Renew, Renewal, Result,
    Stop, Undone,
};

use crate::Strategy;
use crate::strategy::{Kind, Seat};

/// What a mutant does in place of the backend that it is made of; what it does not name is left to that.
#[async_trait]
pub(super) trait Flaw: Send + Sync + 'static {
    /// The backend without the flaw.
    fn ours(&self) -> &dyn Backend;

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.ours().try_acquire(claim).await
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        self.ours().acquire(claim, stop).await
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        self.ours().renew(batch).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        self.ours().release(grant).await
    }

    async fn abandon(&self, claim: &Claim) -> Result<Undone> {
        self.ours().abandon(claim).await
    }
}

/// The backend with the flaw.
pub(super) fn flawed(flaw: impl Flaw) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Flawed(flaw)))
}

/// The backend of this kind without a flaw.
pub(super) async fn ours(kind: Kind, seat: &Seat) -> Result<Arc<dyn Backend>> {
    let strategy = Strategy::all().into_iter().find(|strategy| strategy.kind() == kind);
    strategy.expect("there is a strategy of every kind").backend(seat).await
}

/// Has every server know these scripts, so that no first request is one that is refused and sent again.
pub(super) async fn load(urls: &[String], scripts: &[&str]) -> Result<()> {
    let load = async |url: &String| -> redis::RedisResult<()> {
        let mut redis = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
        for script in scripts {
            redis::cmd("SCRIPT").arg("LOAD").arg(script).exec_async(&mut redis).await?;
        }
        Ok(())
    };
    for url in urls {
        load(url).await.map_err(|error| failed("connect", error))?;
    }
    Ok(())
}

/// The error of a client that a mutant asks by itself.
pub(super) fn failed(operation: &'static str, error: impl Display) -> Error {
    Error::new(ErrorKind::Unavailable, Effect::Unknown, "mutant", operation, error.to_string())
}

/// The error of a renewal that finds nothing.
pub(super) fn lost() -> Error {
    Error::new(ErrorKind::Lost, Effect::None, "mutant", "renew", "the lock is not ours any more")
}

struct Flawed<F>(F);

impl<F: Flaw> Debug for Flawed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Flawed").field(&self.0.ours()).finish()
    }
}

#[async_trait]
impl<F: Flaw> Backend for Flawed<F> {
    fn name(&self) -> &str {
        self.0.ours().name()
    }

    fn guarantees(&self) -> Guarantees {
        self.0.ours().guarantees()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.0.try_acquire(claim).await
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        self.0.acquire(claim, stop).await
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        self.0.renew(batch).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        self.0.release(grant).await
    }

    async fn abandon(&self, claim: &Claim) -> Result<Undone> {
        self.0.abandon(claim).await
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection> {
        self.0.ours().inspect(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockKey>> {
        self.0.ours().list(prefix).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Release> {
        self.0.ours().force_release(key).await
    }

    async fn close(&self) -> Result<()> {
        self.0.ours().close().await
    }
}
