use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Something that happens once and can be waited for by many.
#[derive(Clone, Default)]
pub(crate) struct Flag(Arc<Inner>);

#[derive(Default)]
struct Inner {
    raised: AtomicBool,
    waiting: Notify,
}

impl Flag {
    pub(crate) fn raise(&self) {
        self.0.raised.store(true, Ordering::Release);
        self.0.waiting.notify_waiters();
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::Acquire)
    }

    pub(crate) async fn raised(&self) {
        // Made before the look, so that a raise in between is not missed: it reaches all that have been made.
        let waiting = self.0.waiting.notified();
        if !self.is_raised() {
            waiting.await;
        }
    }
}

impl fmt::Debug for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Flag").field(&self.is_raised()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wakes_those_who_wait_and_those_who_come_later() {
        let flag = Flag::default();
        let waiter = tokio::spawn({
            let flag = flag.clone();
            async move { flag.raised().await }
        });
        tokio::task::yield_now().await;
        flag.raise();
        waiter.await.unwrap();
        flag.raised().await;
        assert!(flag.is_raised());
    }
}
