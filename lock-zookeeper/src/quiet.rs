//! Paths on which nobody else contends: there the number of a new node proves that it is first, without a list of the line.
//!
//! The server numbers sequential nodes by counting the children that their path has ever had, of whatever name and kind. So
//! if a node of ours was alone in line, and the next node that we make has the very next number, nobody came between the two;
//! and if ours is gone by then, the new one is alone in its turn, and so on.
//!
//! This is so for one life of the path. If it is deleted and made again, the count begins anew, and others may stand where it
//! arrives at our number. So the path is watched. The server tells of a deletion before it answers whatever was asked later
//! (`ZooKeeper`'s guarantee of the order of watches), so the reply to our create comes after the news. The watch is set
//! between a create and the list that shows the node of that create: then the path was not deleted before the watch stood. It
//! counts only on the connection on which it was set.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use zookeeper_client::{Client, OneshotWatcher, StateWatcher, WatchedEvent};

/// How many paths are remembered. When there are more, all are forgotten: each is learned anew in three turns.
const REMEMBERED: usize = 1_024;

/// Where a claim of this session was alone in line and has left since. By path.
#[derive(Debug, Default)]
pub(crate) struct Quiet(Mutex<HashMap<String, Alone>>);

impl Quiet {
    /// What is known of a path. Whoever makes a node there takes it, for it is not true any more.
    pub(crate) fn take(&self, path: &str) -> Option<Alone> {
        self.known().remove(path)
    }

    /// Notes that the node which was alone at `path` is gone.
    pub(crate) fn put(&self, path: &str, alone: Alone) {
        let mut known = self.known();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(path.to_owned(), alone);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Alone>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// At some moment after the create of this number, a node of ours was the only contender of its path.
#[derive(Debug)]
pub(crate) struct Alone {
    sequence: i64,
    /// Whether nobody came between this create and the one of ours before it.
    undisturbed: bool,
    watch: Option<Watch>,
}

impl Alone {
    /// What a list has shown after the create of this number; `before` is what was known until then, and `watch` stands on
    /// the path since before the list.
    pub(crate) fn listed(sequence: i64, before: Option<Self>, watch: Option<Watch>) -> Self {
        let undisturbed = before.as_ref().is_some_and(|before| before.is_followed_by(sequence));
        let watch = watch.or_else(|| before.and_then(|before| before.watch));
        Self { sequence, undisturbed, watch }
    }

    /// Whether the next create is expected to prove itself. It is not where others come and go, because a create that does
    /// not prove itself is one trip more.
    pub(crate) const fn may_prove(&self) -> bool {
        self.undisturbed && self.watch.is_some()
    }

    /// Whether the path is worth a watch.
    pub(crate) const fn wants_watch(&self) -> bool {
        self.undisturbed && self.watch.is_none()
    }

    /// What the reply to a create of this number, sent after our node before it was gone, proves of the new node: if it is
    /// `Ok`, the new node is alone. Otherwise, what was known until then.
    pub(crate) fn next(mut self, sequence: i64) -> Result<Self, Self> {
        self.watch = self.watch.and_then(Watch::if_it_stands);
        if self.watch.is_some() && self.is_followed_by(sequence) { Ok(Self { sequence, ..self }) } else { Err(self) }
    }

    fn is_followed_by(&self, sequence: i64) -> bool {
        self.sequence.checked_add(1) == Some(sequence)
    }
}

/// A watch on a path that exists.
pub(crate) struct Watch {
    event: Pin<Box<dyn Future<Output = WatchedEvent> + Send>>,
    /// Changed if the connection is another one since.
    connection: StateWatcher,
}

impl Watch {
    /// Asks for one. The request is sent at once, and not when the future is polled.
    pub(crate) fn set<'a>(client: &'a Client, path: &str) -> impl Future<Output = Option<Self>> + use<'a> {
        let connection = client.state_watcher();
        let asked = client.check_and_watch_stat(path);
        async move {
            match asked.await {
                Ok((Some(_), watcher)) => Some(Self { event: Box::pin(OneshotWatcher::changed(watcher)), connection }),
                Ok((None, _)) => None,
                Err(error) => {
                    tracing::debug!(%error, "a path is not watched, so its line will be listed each time");
                    None
                }
            }
        }
    }

    /// The same, if nothing has happened to the path since it was set.
    fn if_it_stands(mut self) -> Option<Self> {
        // The library panics in it when the runtime of the session has ended.
        let told = AssertUnwindSafe(&mut self.event).catch_unwind().now_or_never();
        let stands = told.is_none() && self.connection.changed().now_or_never().is_none();
        stands.then_some(self)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_next_number_is_undisturbed_and_nothing_is_proven_without_a_watch() {
        let first = Alone::listed(7, None, None);
        assert!(!first.may_prove() && !first.wants_watch());
        let second = Alone::listed(8, Some(first), None);
        assert!(!second.may_prove() && second.wants_watch());
        let second = second.next(9).expect_err("it has no watch");
        assert!(!Alone::listed(10, Some(second), None).wants_watch());
        let last = Alone::listed(i64::from(i32::MAX), None, None);
        assert!(!Alone::listed(i64::from(i32::MIN), Some(last), None).wants_watch());
    }

    #[test]
    fn a_path_is_known_once_and_few_are_remembered() {
        let quiet = Quiet::default();
        quiet.put("/a", Alone::listed(1, None, None));
        assert_eq!(quiet.take("/a").map(|alone| alone.sequence), Some(1));
        assert!(quiet.take("/a").is_none());
        for path in 0..3 * REMEMBERED {
            quiet.put(&path.to_string(), Alone::listed(1, None, None));
            assert!(quiet.known().len() <= REMEMBERED);
        }
    }
}
