use std::sync::Arc;
use std::time::Duration;

use crate::driver::{Acquisition, Wanted};
use crate::locks::Handle;
use crate::{ErrorKind, Lease, LockGuard, LockKey, Owner, Release, Result};

/// One lock: a key and how it is to be held. Cheap to clone; it holds nothing, its guards do.
///
/// | call | if somebody else holds it |
/// | --- | --- |
/// | [`try_acquire`](Lock::try_acquire) | `None` at once |
/// | [`acquire_within`](Lock::acquire_within) | waits up to a limit |
/// | [`acquire`](Lock::acquire) | waits |
/// | [`run`](Lock::run) | waits, then runs work that is cancelled when the lock is lost |
#[derive(Clone, Debug)]
pub struct Lock {
    handle: Arc<Handle>,
    key: LockKey,
    lease: Lease,
    owner: Option<Owner>,
}

impl Lock {
    pub(crate) fn new(handle: &Arc<Handle>, key: LockKey) -> Self {
        Self { lease: handle.driver.options.lease, handle: Arc::clone(handle), key, owner: None }
    }

    /// The same lock, held with another lease.
    #[must_use]
    pub fn lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// The same lock for an owner of one's own, who may acquire again what it holds. It is free when each guard has been
    /// given back.
    ///
    /// Acquiring is [`ErrorKind::Unsupported`] on a backend that is not re-entrant. Tasks of one owner do not queue in this
    /// process, because they do not exclude each other.
    #[must_use]
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(*owner);
        self
    }

    /// What it locks.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// Waits until the lock is ours.
    ///
    /// Tasks of this process that want the same key stand in a queue of their own, first come first served, and only the
    /// first of them asks the store.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store could not be reached for [`Options::unavailable_after`](crate::Options::unavailable_after),
    /// with the last error as its source; `Rejected`, `InvalidInput`, `Unsupported` and `Backend` at once.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future gives up its place, and a grant that was on its way is given back. The place in the
    /// queue is lost; to try for a limited time use [`acquire_within`](Lock::acquire_within).
    pub async fn acquire(&self) -> Result<LockGuard> {
        let held = Acquisition::acquire(&self.handle.driver, &self.wanted(), None).await?;
        Ok(LockGuard::new(&self.handle, held))
    }

    /// Waits for the lock for `limit` at most. A limit beyond the clock's range is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] if somebody else held the lock until the limit; [`ErrorKind::Unavailable`] if the store could
    /// not be reached, or did not answer, until then. Others as for [`acquire`](Lock::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Lock::acquire).
    pub async fn acquire_within(&self, limit: Duration) -> Result<LockGuard> {
        let held = Acquisition::acquire(&self.handle.driver, &self.wanted(), Some(limit)).await?;
        Ok(LockGuard::new(&self.handle, held))
    }

    /// Tries once: `None` if somebody else holds the lock.
    ///
    /// A lock that this process holds, or is giving back, answers without asking the store. A try does not wait behind other
    /// tasks that want the key.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Lock::acquire), but `Unavailable` at the first failure.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a grant that was on its way is given back.
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>> {
        let held = Acquisition::try_acquire(&self.handle.driver, &self.wanted()).await?;
        Ok(held.map(|held| LockGuard::new(&self.handle, held)))
    }

    /// Waits for the lock, runs `body` under it, and gives it back. When the lock is lost, `body` is dropped at its next
    /// `await`.
    ///
    /// The value of a body that has finished is lost if the lock was: who needs it all the same takes
    /// [`acquire`](Lock::acquire) and [`LockGuard::lost`].
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Lock::acquire), before `body` has begun; [`ErrorKind::Lost`] if the lock was lost before the end, or
    /// if its release found that it was. If the release fails otherwise, the value is returned and the keeper goes on
    /// releasing.
    ///
    /// # Panics
    ///
    /// If `body` does: the lock is given back, and the panic goes on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` at its present `await` and gives the lock back. Nothing else is lost.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lock_core::Result<()> {
    /// # let locks = lock_core::Locks::new(lock_memory::Memory::new());
    /// let report = locks.lock("report")?;
    /// let sum = report.run(async |guard| {
    ///     assert!(guard.is_held());
    ///     1 + 1
    /// });
    /// assert_eq!(sum.await?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F, T>(&self, body: F) -> Result<T>
    where
        F: AsyncFnOnce(&LockGuard) -> T,
    {
        let guard = self.acquire().await?;
        let value = tokio::select! {
            biased;
            reason = guard.lost() => return Err(guard.lost_error("run", reason)),
            value = body(&guard) => value,
        };
        let watch = guard.watch();
        if let Some(reason) = watch.loss() {
            return Err(guard.lost_error("run", reason));
        }
        match guard.release().await {
            Ok(Release::Released) => Ok(value),
            Ok(Release::NotHeld) => Err(watch.lost_error("run", crate::LossReason::NotHeld)),
            Err(error) if error.kind() == ErrorKind::Lost => Err(error),
            Err(error) => {
                tracing::warn!(key = %self.key, %error, "not given back yet; the keeper goes on");
                Ok(value)
            }
        }
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted { key: &self.key, owner: self.owner, lease: self.lease }
    }
}
