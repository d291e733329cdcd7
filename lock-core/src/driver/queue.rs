//! The local queue: tasks of one process that want the same key stand in line in memory, first come first served, and only
//! the head contends at the store.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::{Error, LockKey, Moment};

/// One line per key that anybody here wants or has; nothing for other keys.
#[derive(Debug, Default)]
pub(crate) struct LocalQueue {
    slots: Mutex<HashMap<LockKey, Slot>>,
}

#[derive(Debug, Default)]
struct Slot {
    /// How many places there are, with a turn or without.
    places: usize,
    /// How many of them hold the lock, or are giving it back.
    holding: usize,
    /// Whether one of them has the turn.
    turn_taken: bool,
    waiters: VecDeque<Arc<Waiter>>,
    outage: Option<Outage>,
}

/// The store has not answered for this key since then.
#[derive(Clone, Debug)]
pub(crate) struct Outage {
    pub(crate) since: Moment,
    pub(crate) last_error: Error,
}

#[derive(Debug, Default)]
struct Waiter {
    has_turn: AtomicBool,
    wake: Notify,
}

impl LocalQueue {
    /// Stands in line for `key`; the turn may already have come.
    pub(crate) fn join(self: &Arc<Self>, key: &LockKey) -> Queued {
        let waiter = Arc::new(Waiter::default());
        let mut slots = self.slots();
        let slot = slots.entry(key.clone()).or_default();
        if slot.turn_taken {
            slot.waiters.push_back(Arc::clone(&waiter));
        } else {
            slot.turn_taken = true;
            slot.places += 1;
            waiter.has_turn.store(true, Ordering::Release);
        }
        Queued { queue: Arc::clone(self), key: key.clone(), waiter: Some(waiter) }
    }

    /// A place beside the line, for one that never waits in it.
    pub(crate) fn beside(self: &Arc<Self>, key: &LockKey) -> Place {
        self.slots().entry(key.clone()).or_default().places += 1;
        Place { queue: Arc::clone(self), key: key.clone(), has_turn: false, holds: false }
    }

    /// A place for one try: none if the lock is held or being given back here; with the turn if nobody has it.
    pub(crate) fn try_join(self: &Arc<Self>, key: &LockKey) -> Option<Place> {
        let mut slots = self.slots();
        let slot = slots.entry(key.clone()).or_default();
        if slot.holding > 0 {
            return None;
        }
        slot.places += 1;
        let has_turn = !slot.turn_taken;
        slot.turn_taken = true;
        Some(Place { queue: Arc::clone(self), key: key.clone(), has_turn, holds: false })
    }

    /// Wakes every waiter, to look at the world again.
    pub(crate) fn wake_all(&self) {
        for slot in self.slots().values() {
            slot.wake();
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.slots().is_empty()
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<LockKey, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outage(&self, key: &LockKey) -> Option<Outage> {
        self.slots().get(key).and_then(|slot| slot.outage.clone())
    }
}

impl Slot {
    fn wake(&self) {
        for waiter in &self.waiters {
            waiter.wake.notify_one();
        }
    }

    /// Gives the turn to the next in line.
    fn pass_turn(&mut self) {
        match self.waiters.pop_front() {
            Some(next) => {
                self.places += 1;
                next.has_turn.store(true, Ordering::Release);
                next.wake.notify_one();
            }
            None => self.turn_taken = false,
        }
    }

    fn end_outage(&mut self) {
        if self.outage.take().is_some() {
            self.wake();
        }
    }

    fn is_idle(&self) -> bool {
        self.places == 0 && self.waiters.is_empty()
    }
}

/// Standing in line. Dropping it leaves the line, or passes the turn on if it has come.
#[derive(Debug)]
pub(crate) struct Queued {
    queue: Arc<LocalQueue>,
    key: LockKey,
    waiter: Option<Arc<Waiter>>,
}

impl Queued {
    /// The place, if the turn has come.
    pub(crate) fn place(&mut self) -> Option<Place> {
        let waiter = self.waiter.as_ref()?;
        if !waiter.has_turn.load(Ordering::Acquire) {
            return None;
        }
        self.waiter = None;
        Some(Place { queue: Arc::clone(&self.queue), key: self.key.clone(), has_turn: true, holds: false })
    }

    /// Waits for a change: the turn, an outage that begins or ends, or a call to look at the world again.
    pub(crate) async fn woken(&self) {
        match &self.waiter {
            Some(waiter) => waiter.wake.notified().await,
            None => std::future::pending().await,
        }
    }

    /// The outage that those ahead have met.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.queue.outage(&self.key)
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if let Some(place) = self.place() {
            drop(place);
        } else if let Some(waiter) = self.waiter.take() {
            let mut slots = self.queue.slots();
            let Some(slot) = slots.get_mut(&self.key) else { return };
            slot.waiters.retain(|other| !Arc::ptr_eq(other, &waiter));
            // The turn may have come between the look above and the lock.
            if waiter.has_turn.load(Ordering::Acquire) {
                slot.places -= 1;
                slot.pass_turn();
            }
            if slot.is_idle() {
                slots.remove(&self.key);
            }
        }
    }
}

/// One that contends for a key or holds it. Dropping it lets the next in line go on.
#[derive(Debug)]
pub(crate) struct Place {
    queue: Arc<LocalQueue>,
    key: LockKey,
    has_turn: bool,
    holds: bool,
}

impl Place {
    /// The store has granted it: from now on tries from this process know without asking that the lock is held.
    pub(crate) fn hold(&mut self) {
        if self.holds {
            return;
        }
        self.holds = true;
        if let Some(slot) = self.queue.slots().get_mut(&self.key) {
            slot.holding += 1;
            slot.end_outage();
        }
    }

    /// Notes that the store did not answer, since `since` unless it has been silent for longer; returns the outage.
    pub(crate) fn note_silence(&self, since: Moment, error: &Error) -> Outage {
        let mut slots = self.queue.slots();
        let slot = slots.entry(self.key.clone()).or_default();
        let since = slot.outage.as_ref().map_or(since, |outage| outage.since.min(since));
        let outage = Outage { since, last_error: error.clone() };
        slot.outage = Some(outage.clone());
        slot.wake();
        outage
    }

    /// Notes that the store has answered.
    pub(crate) fn note_answer(&self) {
        if let Some(slot) = self.queue.slots().get_mut(&self.key) {
            slot.end_outage();
        }
    }

    /// The outage that goes on for this key.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.queue.outage(&self.key)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut slots = self.queue.slots();
        let Entry::Occupied(mut slot) = slots.entry(self.key.clone()) else { return };
        let places = slot.get_mut();
        places.places -= 1;
        if self.holds {
            places.holding -= 1;
        }
        if self.has_turn {
            places.pass_turn();
        }
        if places.is_idle() {
            slot.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> LockKey {
        LockKey::new("k").unwrap()
    }

    #[test]
    fn first_come_first_served_and_nothing_is_left() {
        let queue = Arc::new(LocalQueue::default());
        let mut line: Vec<_> = (0..4).map(|_| queue.join(&key())).collect();
        let first = line[0].place().unwrap();
        assert!(line[1..].iter_mut().all(|queued| queued.place().is_none()));
        drop(first);
        let second = line[1].place().unwrap();
        // One that leaves the line is passed over, also if its turn comes while it leaves.
        line.remove(2);
        drop(second);
        let last = line[2].place().unwrap();
        drop(last);
        drop(line);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_turn_that_came_unseen_is_passed_on() {
        let queue = Arc::new(LocalQueue::default());
        let (mut a, b, mut c) = (queue.join(&key()), queue.join(&key()), queue.join(&key()));
        drop(a.place().unwrap());
        drop(b);
        assert!(c.place().is_some());
    }

    #[test]
    fn a_try_is_refused_only_while_the_lock_is_held_here() {
        let queue = Arc::new(LocalQueue::default());
        let mut head = queue.join(&key()).place().unwrap();
        let beside = queue.try_join(&key()).unwrap();
        assert!(!beside.has_turn);
        head.hold();
        assert!(queue.try_join(&key()).is_none());
        drop(head);
        let alone = queue.try_join(&key()).unwrap();
        assert!(alone.has_turn);
        drop((beside, alone));
        assert!(queue.is_empty());
    }

    #[test]
    fn an_outage_counts_from_its_first_silence_and_ends_with_an_answer() {
        let queue = Arc::new(LocalQueue::default());
        let place = queue.join(&key()).place().unwrap();
        let waiter = queue.join(&key());
        let error = Error::new(crate::ErrorKind::Unavailable, crate::Effect::None, "test", "acquire", "away");
        let start = Moment::now();
        let later = start.saturating_add(std::time::Duration::from_secs(1));
        place.note_silence(start, &error);
        assert_eq!(place.note_silence(later, &error).since, start);
        assert_eq!(waiter.outage().unwrap().since, start);
        place.note_answer();
        assert!(waiter.outage().is_none() && place.outage().is_none());
    }
}
