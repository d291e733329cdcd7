use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{ClaimId, LossSignal, Moment};

use crate::places::Choice;

/// How many abandoned claims one lease remembers. After that, new claims get a new lease, and the tombstones go with the old.
const TOMBSTONES: u32 = 1_000;

/// A lease of the server's, and what we know of it.
///
/// A session is shared by all renewed grants of one ttl; a fixed grant has a lease of its own.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) id: i64,
    /// The ttl that we asked for, in seconds.
    pub(crate) seconds: i64,
    /// The ttl that the server gave.
    pub(crate) granted: Duration,
    pub(crate) is_session: bool,
    /// Held over a keep-alive, so that one is in flight.
    pub(crate) keeping: tokio::sync::Mutex<()>,
    /// Just before the last request that restarted the ttl was sent.
    alive_at: Mutex<Moment>,
    marked: AtomicBool,
    tombstones: AtomicU32,
    lost: LossSignal,
    holds: Mutex<Holds>,
}

/// Those who want to be told when the lease has ended.
#[derive(Debug, Default)]
struct Holds {
    last: u64,
    signals: HashMap<u64, LossSignal>,
}

impl Lease {
    pub(crate) fn new(id: i64, seconds: i64, granted: Duration, is_session: bool, sent_at: Moment) -> Self {
        Self {
            id,
            seconds,
            granted,
            is_session,
            keeping: tokio::sync::Mutex::default(),
            alive_at: Mutex::new(sent_at),
            marked: AtomicBool::new(false),
            tombstones: AtomicU32::new(0),
            lost: LossSignal::new(),
            holds: Mutex::default(),
        }
    }

    /// Just before the last request that restarted the ttl was sent.
    pub(crate) fn alive_at(&self) -> Moment {
        *self.alive_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request sent at `sent_at` has restarted the ttl.
    pub(crate) fn restarted(&self, sent_at: Moment) {
        let mut alive_at = self.alive_at.lock().unwrap_or_else(PoisonError::into_inner);
        *alive_at = sent_at.max(*alive_at);
    }

    /// When it should be kept alive next: a third of its ttl after the last time.
    pub(crate) fn due_at(&self) -> Moment {
        self.alive_at().saturating_add(self.granted / 3)
    }

    /// Whether nobody has kept it alive for so long that the server may have ended it.
    pub(crate) fn may_have_ended(&self) -> bool {
        self.alive_at().saturating_add(self.granted).remaining().is_zero()
    }

    /// Whether its marker is in the store, so that the watch will tell its end.
    pub(crate) fn is_marked(&self) -> bool {
        self.marked.load(Ordering::Acquire)
    }

    pub(crate) fn set_marked(&self) {
        self.marked.store(true, Ordering::Release);
    }

    pub(crate) fn note_tombstone(&self) {
        self.tombstones.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether new claims should use another.
    pub(crate) fn is_full(&self) -> bool {
        self.tombstones.load(Ordering::Relaxed) >= TOMBSTONES
    }

    /// The server has ended it: everything under it is lost. Final.
    pub(crate) fn lose(&self) {
        self.lost.fire();
        for signal in std::mem::take(&mut self.holds().signals).into_values() {
            signal.fire();
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_fired()
    }

    /// Waits until it is lost.
    pub(crate) async fn lost(&self) {
        self.lost.fired().await;
    }

    /// Has `signal` fired when the lease is lost; returns the number to leave with.
    fn join(&self, signal: &LossSignal) -> u64 {
        let mut holds = self.holds();
        // Looked at under the lock that the loss takes after it has fired, so that one of the two sees the other.
        if self.is_lost() {
            signal.fire();
        }
        holds.last += 1;
        let number = holds.last;
        holds.signals.insert(number, signal.clone());
        number
    }

    fn leave(&self, number: u64) {
        self.holds().signals.remove(&number);
    }

    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a grant carries: its key, and the lease that it is under now.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) claim: ClaimId,
    pub(crate) key: String,
    /// The create revision of the key, which is also the fencing token.
    pub(crate) revision: i64,
    pub(crate) signal: LossSignal,
    pub(crate) choice: Choice,
    under: Mutex<Under>,
}

#[derive(Debug)]
struct Under {
    lease: Arc<Lease>,
    number: u64,
    /// The revision at which the key was put under this lease.
    modified: i64,
}

impl Hold {
    pub(crate) fn new(claim: ClaimId, key: String, revision: i64, lease: Arc<Lease>, choice: Choice) -> Self {
        let signal = LossSignal::new();
        let number = lease.join(&signal);
        Self { claim, key, revision, signal, choice, under: Mutex::new(Under { lease, number, modified: revision }) }
    }

    pub(crate) fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.under().lease)
    }

    /// The revision at which the key was last written, as far as we know.
    pub(crate) fn modified(&self) -> i64 {
        self.under().modified
    }

    /// Notes that the key has moved to another lease.
    pub(crate) fn moved(&self, lease: Arc<Lease>, modified: i64) {
        let mut under = self.under();
        under.lease.leave(under.number);
        *under = Under { number: lease.join(&self.signal), lease, modified };
    }

    fn under(&self) -> MutexGuard<'_, Under> {
        self.under.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let under = self.under();
        under.lease.leave(under.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(id: i64) -> Arc<Lease> {
        Arc::new(Lease::new(id, 30, Duration::from_secs(30), true, Moment::now()))
    }

    fn hold(lease: &Arc<Lease>) -> Hold {
        let claim = ClaimId::random();
        let choice = Arc::new(crate::places::Places::default()).choose("a/", claim);
        Hold::new(claim, "a/1f-2".to_owned(), 7, Arc::clone(lease), choice)
    }

    #[test]
    fn a_lost_lease_tells_those_under_it_and_those_who_come_later() {
        let lease = lease(1);
        let early = hold(&lease);
        lease.lose();
        assert!(early.signal.is_fired() && hold(&lease).signal.is_fired());
    }

    #[test]
    fn a_hold_that_moved_hears_of_its_new_lease_only() {
        let (old, new) = (lease(1), lease(2));
        let hold = hold(&old);
        hold.moved(Arc::clone(&new), 9);
        old.lose();
        assert!(!hold.signal.is_fired());
        new.lose();
        assert!(hold.signal.is_fired());
    }

    #[test]
    fn a_dropped_hold_leaves_nothing_behind() {
        let lease = lease(1);
        drop(hold(&lease));
        assert!(lease.holds().signals.is_empty());
    }

    #[test]
    fn a_late_answer_does_not_set_the_clock_back() {
        let lease = lease(1);
        let (first, second) = (Moment::now(), Moment::now().saturating_add(Duration::from_secs(1)));
        lease.restarted(second);
        lease.restarted(first);
        assert_eq!(lease.alive_at(), second);
    }
}
