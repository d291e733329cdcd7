//! Waiting for one's turn: each waiter watches the key before its own, and nobody else's.

use std::time::Duration;

use etcd_client::{EventType, ResponseHeader, WatchResponse, WatchStream};
use lock_core::{Moment, Stop, wait};

use crate::error::Failure;
use crate::queue::{Before, Spot, Standing};

/// How long a waiter rests when its watch was ended: whatever ended it may end the next one as fast.
const PAUSE: Duration = Duration::from_millis(20);

/// How a wait ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    /// Our key, of this create revision, is the first.
    Ours(i64),
    /// The driver has stopped it, and our key is deleted.
    GivenUp,
    /// Our key is gone, and we with it.
    Gone,
}

/// A watch on the key before ours.
struct Watch {
    key: Vec<u8>,
    stream: WatchStream,
    /// The endpoint that serves it.
    at: usize,
}

/// What there is to do.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Give up the place.
    Leave,
    /// Look who is before us, and go on with the watch if it is still the same.
    Look,
    /// The same, with a new watch.
    LookAnew,
}

impl Spot<'_> {
    /// Waits from one predecessor to the next until it is our turn, and keeps the lease alive: the keeper renews grants only.
    pub(crate) async fn wait(&self, mut standing: Standing, stop: &Stop) -> Result<Turn, Failure> {
        let mut kept: Option<Watch> = None;
        loop {
            let (revision, before) = match standing {
                Standing::Behind { revision, before } => (revision, before),
                Standing::First { revision, .. } => return Ok(Turn::Ours(revision)),
                Standing::Outside | Standing::Gone | Standing::Undone | Standing::Taken => return Ok(Turn::Gone),
            };
            let next = match kept.take().filter(|watch| watch.key == before.key) {
                Some(watch) => self.listen(watch, &before, stop).await,
                None => tokio::select! {
                    biased;
                    () = stop.fired() => (Next::Leave, None),
                    watch = self.watch(&before) => self.listen(watch?, &before, stop).await,
                },
            };
            kept = match next {
                (Next::Leave, _) => {
                    self.leave(revision).await?;
                    return Ok(Turn::GivenUp);
                }
                (Next::Look, watch) => watch,
                (Next::LookAnew, _) => None,
            };
            standing = self.look_and_keep_alive(revision).await?;
        }
    }

    async fn watch(&self, before: &Before) -> Result<Watch, Failure> {
        let (stream, at) = self.endpoints.watch_deletions(&before.key, false).await?;
        Ok(Watch { key: before.key.clone(), stream, at })
    }

    /// Waits until there is something to do: at the latest after the floor of [`wait`], because a connection can die without a
    /// word.
    async fn listen(&self, mut watch: Watch, before: &Before, stop: &Stop) -> (Next, Option<Watch>) {
        let nap = wait::FLOOR.mul_f64(0.75 + fastrand::f64() / 4.0).min(self.lease.due_at().remaining());
        let nap_ends = Moment::now().saturating_add(nap);
        loop {
            let message = tokio::select! {
                biased;
                () = stop.fired() => return (Next::Leave, None),
                message = watch.stream.message() => message,
                () = self.lease.lost() => return (Next::Look, Some(watch)),
                () = tokio::time::sleep(nap_ends.remaining()) => return (Next::Look, Some(watch)),
            };
            match message {
                Ok(Some(message)) if has_deletion(&message) => return (Next::LookAnew, None),
                Ok(Some(message)) if message.canceled() => {
                    tracing::debug!(reason = message.cancel_reason(), "the watch was cancelled; looking again");
                }
                Ok(Some(message)) => {
                    let begun_at = message.header().map_or(i64::MAX, ResponseHeader::revision);
                    if message.created() && begun_at > before.seen_at {
                        // Something was written between the look and the watch, which tells of nothing before it began.
                        return (Next::Look, Some(watch));
                    }
                    continue;
                }
                Ok(None) => self.endpoints.rotate(watch.at),
                Err(error) => {
                    tracing::debug!(%error, "the watch ended; looking again");
                    self.endpoints.rotate(watch.at);
                }
            }
            tokio::time::sleep(PAUSE).await;
            return (Next::LookAnew, None);
        }
    }

    async fn look_and_keep_alive(&self, revision: i64) -> Result<Standing, Failure> {
        let looking = self.look(revision, false);
        if !self.lease.due_at().remaining().is_zero() {
            return looking.await;
        }
        let (standing, kept) = tokio::join!(looking, self.leases.keep_alive(&self.lease));
        kept?;
        standing
    }
}

fn has_deletion(message: &WatchResponse) -> bool {
    message.events().iter().any(|event| event.event_type() == EventType::Delete)
}
