//! Who waits for which channel. One subscription per channel and connection, made and ended by one task.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::{FromRedisValue, PushInfo, PushKind};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::error::Failure;
use crate::transport::Transport;

/// How many channels one SUBSCRIBE names at most, so that its confirmations come within the limit of a request.
const BATCH: usize = 128;

/// How long the owner rests after a failure.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Subscriptions {
    state: Mutex<State>,
    /// Tells the owner that there is something to do.
    work: Notify,
}

#[derive(Default)]
struct State {
    channels: HashMap<Arc<str>, Channel>,
    /// The channels that the owner has to look at: somebody came, the last one left, or the connection was lost.
    changed: HashSet<Arc<str>>,
    /// Which connection a subscription was made on; the next number after each one that was lost.
    connection: u64,
    owner: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Channel {
    woken: Arc<Notify>,
    waiters: usize,
    /// The connection that has the subscription.
    subscribed_on: Option<u64>,
    /// Those who wait for the confirmation.
    joining: Vec<oneshot::Sender<()>>,
}

impl Subscriptions {
    /// Joins those who wait for `channel`, and waits, at most for `limit`, until the server has confirmed it. Without the
    /// confirmation the waiter is subscribed later; until then its floor wakes it.
    pub(crate) async fn join(
        self: &Arc<Self>,
        channel: &str,
        transport: &Arc<Transport>,
        limit: Duration,
    ) -> Subscription {
        let (subscription, confirmed) = self.enter(channel);
        self.tend(transport);
        if let Some(confirmed) = confirmed {
            self.work.notify_one();
            let _late_or_lost = tokio::time::timeout(limit, confirmed).await;
        }
        subscription
    }

    fn enter(self: &Arc<Self>, name: &str) -> (Subscription, Option<oneshot::Receiver<()>>) {
        let mut state = self.state();
        let connection = state.connection;
        let name = state.channels.get_key_value(name).map_or_else(|| Arc::from(name), |(name, _)| Arc::clone(name));
        let channel = state.channels.entry(Arc::clone(&name)).or_default();
        channel.waiters += 1;
        let confirmed = (channel.subscribed_on != Some(connection)).then(|| {
            let (sender, receiver) = oneshot::channel();
            channel.joining.push(sender);
            receiver
        });
        let woken = Arc::clone(&channel.woken);
        if confirmed.is_some() {
            state.changed.insert(Arc::clone(&name));
        }
        (Subscription { channel: name, woken, subscriptions: Arc::clone(self) }, confirmed)
    }

    /// Sees to it that somebody owns the subscriptions: nobody does at first, and after the owner's runtime has ended.
    pub(crate) fn tend(self: &Arc<Self>, transport: &Arc<Transport>) {
        let mut state = self.state();
        let owned = state.owner.as_ref().is_some_and(|owner| !owner.is_finished());
        if !owned && !state.channels.is_empty() {
            state.owner = Some(tokio::spawn(own(Arc::clone(self), Arc::downgrade(transport))));
        }
    }

    /// Takes what the server pushed. It does not block.
    pub(crate) fn pushed(&self, push: PushInfo) {
        match push.kind {
            PushKind::Disconnection => self.connection_lost(),
            PushKind::Message | PushKind::SMessage => {
                let channel = push.data.into_iter().next().map(String::from_redis_value);
                if let Some(Ok(channel)) = channel
                    && let Some(channel) = self.state().channels.get(&*channel)
                {
                    channel.woken.notify_waiters();
                }
            }
            PushKind::SUnsubscribe => self.unsubscribed(push),
            _ => {}
        }
    }

    /// The slot of a channel has moved away, and its subscriptions have ended with that: the server says so unasked. When we
    /// have asked, the channel is not counted as subscribed any more.
    fn unsubscribed(&self, push: PushInfo) {
        let Some(Ok(name)) = push.data.into_iter().next().map(String::from_redis_value) else { return };
        let state = &mut *self.state();
        if let Some((name, channel)) = state.channels.get_key_value(&*name)
            && channel.subscribed_on.is_some()
        {
            let name = Arc::clone(name);
            // A message may have been missed.
            channel.woken.notify_waiters();
            if let Some(channel) = state.channels.get_mut(&name) {
                channel.subscribed_on = None;
            }
            state.changed.insert(name);
            self.work.notify_one();
        }
    }

    /// Wakes every waiter, because messages may have been missed, and has all channels subscribed anew.
    pub(crate) fn connection_lost(&self) {
        let state = &mut *self.state();
        state.connection += 1;
        // Where nobody waits, the subscription has gone with its connection.
        state.channels.retain(|_, channel| channel.waiters > 0);
        for (name, channel) in &mut state.channels {
            // Those who wait for a confirmation go on without it, and see to it that there is an owner.
            channel.joining.clear();
            channel.woken.notify_waiters();
            state.changed.insert(Arc::clone(name));
        }
        self.work.notify_one();
    }

    fn next_step(&self) -> Step {
        let state = &mut *self.state();
        if state.changed.is_empty() {
            if state.channels.is_empty() {
                // Given up under the lock, so that whoever comes next finds no owner.
                state.owner = None;
                return Step::End;
            }
            return Step::Rest;
        }
        let batch: Vec<_> = state.changed.iter().take(BATCH).map(Arc::clone).collect();
        let mut join = Vec::new();
        let mut leave = Vec::new();
        for name in batch {
            state.changed.remove(&name);
            let Some(channel) = state.channels.get_mut(&name) else { continue };
            if channel.waiters == 0 {
                channel.subscribed_on = None;
                leave.push(name);
            } else if channel.subscribed_on != Some(state.connection) {
                join.push(name);
            }
        }
        Step::Change { join, leave, connection: state.connection }
    }

    fn joined(&self, channels: &[Arc<str>], connection: u64) {
        let mut state = self.state();
        if state.connection != connection {
            return;
        }
        for name in channels {
            if let Some(channel) = state.channels.get_mut(name) {
                channel.subscribed_on = Some(connection);
                channel.joining.drain(..).for_each(|joining| {
                    let _gone = joining.send(());
                });
                // For those who were subscribed before the connection was lost: messages may have been missed.
                channel.woken.notify_waiters();
            }
        }
    }

    fn left(&self, channels: &[Arc<str>]) {
        let mut state = self.state();
        for name in channels {
            if state.channels.get(name).is_some_and(|channel| channel.waiters == 0) {
                state.channels.remove(name);
            }
        }
    }

    /// Rests, and then has these channels looked at again.
    async fn put_off(&self, channels: Vec<Arc<str>>, failure: &Failure) {
        tracing::debug!(?failure, channels = channels.len(), "subscribing or unsubscribing failed, and is tried again");
        tokio::time::sleep(PAUSE).await;
        self.state().changed.extend(channels);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriptions").field("channels", &self.state().channels.len()).finish_non_exhaustive()
    }
}

enum Step {
    Change { join: Vec<Arc<str>>, leave: Vec<Arc<str>>, connection: u64 },
    Rest,
    End,
}

/// The owner: the only task that subscribes and unsubscribes on a connection, one request at a time, because a
/// confirmation is told from another only by its place in the stream.
async fn own(subscriptions: Arc<Subscriptions>, transport: Weak<Transport>) {
    loop {
        match subscriptions.next_step() {
            Step::End => return,
            Step::Rest => subscriptions.work.notified().await,
            Step::Change { join, leave, connection } => {
                let Some(transport) = transport.upgrade() else { return };
                if !leave.is_empty() {
                    match transport.unsubscribe(&leave).await {
                        Ok(()) => subscriptions.left(&leave),
                        Err(failure) => subscriptions.put_off(leave, &failure).await,
                    }
                }
                if !join.is_empty() {
                    match transport.subscribe(&join).await {
                        Ok(()) => subscriptions.joined(&join, connection),
                        Err(failure) => subscriptions.put_off(join, &failure).await,
                    }
                }
            }
        }
    }
}

/// A waiter's part of a subscription, given up when it is dropped.
pub(crate) struct Subscription {
    channel: Arc<str>,
    woken: Arc<Notify>,
    subscriptions: Arc<Subscriptions>,
}

impl AsRef<Notify> for Subscription {
    fn as_ref(&self) -> &Notify {
        &self.woken
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.subscriptions.state();
        if let Some(channel) = state.channels.get_mut(&self.channel) {
            channel.waiters -= 1;
            if channel.waiters == 0 {
                state.changed.insert(Arc::clone(&self.channel));
                self.subscriptions.work.notify_one();
            }
        }
    }
}
