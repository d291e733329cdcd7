//! Which key each claim of this client uses in a queue.
//!
//! etcd keeps a deleted key in its index until the next compaction, and every read of a queue passes it: with a new key for
//! each claim, 20,000 past holders make an acquire three times as slow. So a client has one key per queue, which it uses again
//! and again, and only a claim that finds it in use takes a key of its own.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::ClaimId;

/// The keys in use, by claims that hold, wait, or may have left a request on its way.
#[derive(Debug, Default)]
pub(crate) struct Places {
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    /// Who uses the client's own key of each queue.
    common: HashMap<String, ClaimId>,
    /// Those who have a key of their own.
    apart: HashSet<ClaimId>,
    /// Those of whom a request may have been applied, or may still be.
    uncertain: HashSet<ClaimId>,
}

/// A claim's key. Dropped, it is free for others, unless it was [kept](Choice::keep).
#[derive(Debug)]
pub(crate) struct Choice {
    places: Arc<Places>,
    queue: String,
    claim: ClaimId,
    /// Whether it is the client's own key of the queue.
    pub(crate) is_common: bool,
    went_apart: AtomicBool,
}

impl Places {
    /// The key of this claim: always the same, until it is freed.
    pub(crate) fn choose(self: &Arc<Self>, queue: &str, claim: ClaimId) -> Choice {
        let mut used = self.used();
        let is_common = !used.apart.contains(&claim) && *used.common.entry(queue.to_owned()).or_insert(claim) == claim;
        if !is_common {
            used.apart.insert(claim);
        }
        drop(used);
        Choice {
            places: Arc::clone(self),
            queue: queue.to_owned(),
            claim,
            is_common,
            went_apart: AtomicBool::new(false),
        }
    }

    /// The claim is over, and nothing of it can come any more.
    pub(crate) fn free(&self, queue: &str, claim: ClaimId) {
        let mut used = self.used();
        if used.common.get(queue) == Some(&claim) {
            used.common.remove(queue);
        }
        used.apart.remove(&claim);
        used.uncertain.remove(&claim);
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Choice {
    /// The claim keeps the key until it is released or abandoned, because a request of it may have been applied.
    pub(crate) fn keep(&self) {
        self.places.used().uncertain.insert(self.claim);
    }

    /// The key is free for others.
    pub(crate) fn free(&self) {
        self.places.free(&self.queue, self.claim);
    }

    /// The common key turned out to be in the store, left by an old claim: this one takes a key of its own.
    pub(crate) fn go_apart(&self) {
        self.free();
        self.places.used().apart.insert(self.claim);
        self.went_apart.store(true, Ordering::Relaxed);
    }
}

impl Drop for Choice {
    fn drop(&mut self) {
        let is_uncertain = self.places.used().uncertain.contains(&self.claim);
        if !is_uncertain && !self.went_apart.load(Ordering::Relaxed) {
            self.free();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_after_the_other_they_use_one_key() {
        let places = Arc::new(Places::default());
        for _ in 0..3 {
            assert!(places.choose("a/", ClaimId::random()).is_common);
        }
        let used = places.used();
        assert!(used.common.is_empty() && used.apart.is_empty());
    }

    #[test]
    fn at_once_each_has_its_own_and_keeps_it() {
        let places = Arc::new(Places::default());
        let (first, second) = (ClaimId::random(), ClaimId::random());
        let held = places.choose("a/", first);
        let other = places.choose("a/", second);
        assert!(held.is_common && !other.is_common && places.choose("b/", ClaimId::random()).is_common);
        other.keep();
        drop((held, other));
        // A later request of the claim must find what the first has left, although the common key is free now.
        for _ in 0..2 {
            assert!(!places.choose("a/", second).is_common);
        }
        assert!(places.choose("a/", first).is_common);
    }

    #[test]
    fn what_is_kept_is_freed_by_an_abandon() {
        let places = Arc::new(Places::default());
        let (first, second) = (ClaimId::random(), ClaimId::random());
        places.choose("a/", first).keep();
        places.choose("a/", second).keep();
        places.free("a/", first);
        places.free("a/", second);
        let used = places.used();
        assert!(used.common.is_empty() && used.apart.is_empty());
    }

    #[test]
    fn one_that_finds_the_common_key_in_the_store_goes_apart() {
        let places = Arc::new(Places::default());
        let claim = ClaimId::random();
        let choice = places.choose("a/", claim);
        choice.go_apart();
        drop(choice);
        assert!(!places.choose("a/", claim).is_common);
    }
}
