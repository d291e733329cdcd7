use std::sync::Arc;

use crate::driver::Driver;
use crate::{Backend, Lock, LockKey, Options, Result};

/// Locks in one store: where every use begins. Cheap to clone; all clones share one keeper.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lock_core::Result<()> {
/// use lock_core::Locks;
/// use lock_memory::Memory;
///
/// let locks = Locks::new(Memory::new());
/// let lock = locks.lock("orders/42")?;
/// let guard = lock.acquire().await?;
/// guard.release().await?;
/// locks.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Locks {
    pub(crate) handle: Arc<Handle>,
}

/// What keeps the keeper alive: the handles and the guards of one `Locks`.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) driver: Arc<Driver>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.driver.release_handles();
    }
}

impl Locks {
    /// Locks kept by `backend`, with the default [`Options`]. Needs no runtime: the keeper starts on first use.
    #[must_use]
    pub fn new(backend: impl Backend) -> Self {
        Self::with_options(Arc::new(backend), Options::default())
    }

    /// Locks kept by `backend`, with `options`.
    #[must_use]
    pub fn with_options(backend: Arc<dyn Backend>, options: Options) -> Self {
        Self { handle: Arc::new(Handle { driver: Arc::new(Driver::new(backend, options)) }) }
    }

    /// The lock of this name. No I/O; nothing is kept for a lock that nobody holds or waits for.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the name is no [`LockKey`].
    pub fn lock(&self, name: impl AsRef<str>) -> Result<Lock> {
        Ok(Lock::new(&self.handle, LockKey::new(name)?))
    }

    /// The backend, to look at locks or to take one away: [`Backend::inspect`], [`Backend::list`],
    /// [`Backend::force_release`].
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.handle.driver.backend
    }

    /// Ends the use of these locks: refuses new acquisitions, ends every lease that is still held with
    /// [`LossReason::ShutDown`](crate::LossReason::ShutDown), waits until everything is given back, and closes the backend.
    /// A program that returns from `main` without it leaves what its last guards held to run out with their leases.
    ///
    /// With the store down it ends when the leases are over, at the longest ttl at the latest.
    ///
    /// # Errors
    ///
    /// Where the backend could not end a session cleanly; its locks then end with their leases.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what has begun goes on in the keeper, and it may be called again.
    pub async fn shutdown(&self) -> Result<()> {
        self.handle.driver.shut_down().await;
        self.backend().close().await
    }
}
