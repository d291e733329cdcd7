//! The table of locks: who holds what until when, and who waits. No I/O and no clock: time comes in as an argument.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use lock_core::{Claim, ClaimId, FencingToken, Grant, Inspection, LockKey, Moment, Owner};
use tokio::sync::oneshot;

/// Below this number of keys the table is not swept.
const SWEEP_FLOOR: usize = 64;

/// All locks of one [`Memory`](crate::Memory). A key that is neither held nor waited for has no entry.
#[derive(Debug)]
pub(crate) struct Table {
    entries: HashMap<LockKey, Entry>,
    last_token: u64,
    sweep_at: usize,
}

/// What a claim that joins finds.
#[derive(Debug)]
pub(crate) enum Joined {
    /// The lock, at once.
    Granted(Grant),
    /// A place in the queue. The grant comes through the channel; closing it gives up the place.
    Queued(oneshot::Receiver<Grant>),
}

#[derive(Debug, Default)]
struct Entry {
    hold: Option<Hold>,
    queue: VecDeque<Waiter>,
}

/// What one owner holds: one claim, or several if it has re-entered.
#[derive(Debug)]
struct Hold {
    owner: Owner,
    token: FencingToken,
    claims: Vec<Held>,
}

/// Each claim has a ttl of its own, so that a short one is not kept alive by a long one that is gone.
#[derive(Debug)]
struct Held {
    claim: Claim,
    ends: Moment,
}

#[derive(Debug)]
struct Waiter {
    claim: Claim,
    grant: oneshot::Sender<Grant>,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self { entries: HashMap::new(), last_token: 0, sweep_at: SWEEP_FLOOR }
    }

    /// Grants the lock if it is free and nobody waits for it, or if its owner already has it.
    pub(crate) fn try_join(&mut self, claim: &Claim, now: Moment) -> Option<Grant> {
        self.at(&claim.key, now, |entry, last_token| entry.grant(claim, now, last_token))
    }

    /// As [`try_join`](Self::try_join), but queues where that would refuse.
    pub(crate) fn join(&mut self, claim: &Claim, now: Moment) -> Joined {
        self.at(&claim.key, now, |entry, last_token| {
            if let Some(grant) = entry.grant(claim, now, last_token) {
                return Joined::Granted(grant);
            }
            let (grant, place) = oneshot::channel();
            entry.queue.push_back(Waiter { claim: claim.clone(), grant });
            Joined::Queued(place)
        })
    }

    /// Restarts the claim's ttl; false if it holds nothing.
    pub(crate) fn renew(&mut self, claim: &Claim, ttl: Duration, now: Moment) -> bool {
        self.at(&claim.key, now, |entry, _| {
            let Some(held) = entry.held(claim.id) else { return false };
            held.ends = now.saturating_add(ttl);
            true
        })
    }

    /// Ends what the claim holds; false if that is nothing.
    pub(crate) fn release(&mut self, claim: &Claim, now: Moment) -> bool {
        self.at(&claim.key, now, |entry, _| {
            let held = entry.held(claim.id).is_some();
            entry.end(|held| held.claim.id == claim.id);
            held
        })
    }

    /// Ends what the claim holds and gives up every place that it has.
    pub(crate) fn abandon(&mut self, claim: &Claim, now: Moment) {
        self.at(&claim.key, now, |entry, _| {
            entry.end(|held| held.claim.id == claim.id);
            entry.queue.retain(|waiter| waiter.claim.id != claim.id);
        });
    }

    /// Ends whatever is held; false if that is nothing.
    pub(crate) fn force_release(&mut self, key: &LockKey, now: Moment) -> bool {
        self.at(key, now, |entry, _| entry.hold.take().is_some())
    }

    /// Serves whoever is next if the hold has ended, and says when the present one ends.
    pub(crate) fn settle(&mut self, key: &LockKey, now: Moment) -> Option<Moment> {
        self.at(key, now, |entry, _| entry.ends())
    }

    pub(crate) fn inspect(&mut self, key: &LockKey, now: Moment) -> Inspection {
        self.at(key, now, |entry, _| entry.inspect(now))
    }

    pub(crate) fn held(&self, prefix: &str, now: Moment) -> Vec<LockKey> {
        let begins = |key: &LockKey| key.as_str().starts_with(prefix);
        let held = self.entries.iter().filter(|(key, entry)| begins(key) && entry.is_held(now));
        held.map(|(key, _)| key.clone()).collect()
    }

    /// How many keys have an entry.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Every change goes through here: what has ended is ended first, then comes the change, then whoever is next is served,
    /// and an empty entry is removed. So a lock that is free has no waiters, and nobody can barge past one.
    fn at<T>(&mut self, key: &LockKey, now: Moment, change: impl FnOnce(&mut Entry, &mut u64) -> T) -> T {
        self.sweep(now);
        let entry = self.entries.entry(key.clone()).or_default();
        entry.serve(now, &mut self.last_token);
        let answer = change(entry, &mut self.last_token);
        entry.serve(now, &mut self.last_token);
        if entry.hold.is_none() {
            self.entries.remove(key);
        }
        answer
    }

    /// Removes what ended without anyone looking, before the table doubles: a constant cost per key on average.
    fn sweep(&mut self, now: Moment) {
        if self.entries.len() >= self.sweep_at {
            self.entries.retain(|_, entry| entry.is_held(now) || !entry.queue.is_empty());
            self.sweep_at = SWEEP_FLOOR.max(self.entries.len() * 2);
        }
    }
}

impl Entry {
    fn grant(&mut self, claim: &Claim, now: Moment, last_token: &mut u64) -> Option<Grant> {
        let hold = self.hold.get_or_insert_with(|| {
            *last_token += 1;
            Hold { owner: claim.owner, token: FencingToken::new(*last_token), claims: Vec::new() }
        });
        if hold.owner != claim.owner {
            return None;
        }
        let ttl = claim.lease.ttl();
        hold.claims.retain(|held| held.claim.id != claim.id);
        hold.claims.push(Held { claim: claim.clone(), ends: now.saturating_add(ttl) });
        Some(Grant::new(claim.clone(), now, ttl).with_fencing_token(hold.token))
    }

    fn held(&mut self, id: ClaimId) -> Option<&mut Held> {
        self.hold.as_mut()?.claims.iter_mut().find(|held| held.claim.id == id)
    }

    /// Ends the claims that `ended` names; the hold goes with its last claim.
    fn end(&mut self, ended: impl Fn(&Held) -> bool) {
        if let Some(hold) = &mut self.hold {
            hold.claims.retain(|held| !ended(held));
        }
        self.hold.take_if(|hold| hold.claims.is_empty());
    }

    /// Ends what has expired, gives a free lock to the first who still waits, and forgets who has left the queue.
    fn serve(&mut self, now: Moment, last_token: &mut u64) {
        self.end(|held| held.ends <= now);
        let mut next = 0;
        while let Some(waiter) = self.queue.get(next) {
            let claim = waiter.claim.clone();
            // Refused only if another owner holds: then just those of that owner, who re-enter, may pass.
            let Some(grant) = self.grant(&claim, now, last_token) else {
                next += 1;
                continue;
            };
            // A waiter may leave at any moment, so only the delivery tells.
            let delivered = self.queue.remove(next).is_some_and(|waiter| waiter.grant.send(grant).is_ok());
            if !delivered {
                self.end(|held| held.claim.id == claim.id);
            }
        }
        self.queue.retain(|waiter| !waiter.grant.is_closed());
    }

    fn ends(&self) -> Option<Moment> {
        self.hold.as_ref()?.claims.iter().map(|held| held.ends).max()
    }

    fn is_held(&self, now: Moment) -> bool {
        self.ends().is_some_and(|ends| ends > now)
    }

    fn inspect(&self, now: Moment) -> Inspection {
        let mut seen = Inspection::default();
        seen.waiters = u64::try_from(self.queue.len()).ok();
        if let Some(hold) = &self.hold {
            seen.held = true;
            seen.holder = Some(format!("{:032x}", hold.owner.bits()));
            seen.label = hold.claims.iter().find_map(|held| held.claim.label.as_deref().map(str::to_owned));
            seen.fencing_token = Some(hold.token);
            seen.remaining = self.ends().map(|ends| ends.saturating_duration_since(now));
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use lock_core::Lease;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn claim(owner: Owner, ttl: Duration) -> Claim {
        Claim::new(LockKey::new("a").unwrap(), owner, Lease::fixed(ttl))
    }

    fn queued(joined: Joined) -> oneshot::Receiver<Grant> {
        match joined {
            Joined::Queued(place) => place,
            Joined::Granted(grant) => panic!("{grant:?}"),
        }
    }

    #[test]
    fn a_lock_is_free_at_the_very_end_of_its_ttl() {
        let (mut table, start) = (Table::new(), Moment::now());
        let [first, second] = [Owner::random(), Owner::random()].map(|owner| claim(owner, SECOND));
        assert!(table.try_join(&first, start).is_some());
        let last = start.saturating_add(SECOND - Duration::from_nanos(1));
        assert!(table.try_join(&second, last).is_none());
        assert!(table.try_join(&second, start.saturating_add(SECOND)).is_some());
        assert!(!table.release(&first, start.saturating_add(SECOND)));
    }

    #[test]
    fn each_claim_of_an_owner_has_its_own_ttl() {
        let (mut table, start, owner) = (Table::new(), Moment::now(), Owner::random());
        let (long, short) = (claim(owner, SECOND * 10), claim(owner, SECOND));
        let token = table.try_join(&long, start).unwrap().fencing_token;
        assert_eq!(table.try_join(&short, start).unwrap().fencing_token, token);
        assert_eq!(table.inspect(&long.key, start).remaining, Some(SECOND * 10));
        assert!(table.release(&long, start));
        assert_eq!(table.inspect(&long.key, start).remaining, Some(SECOND));
        assert!(!table.inspect(&long.key, start.saturating_add(SECOND)).held);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_hand_over_serves_everyone_of_the_next_owner_and_nobody_else() {
        let (mut table, now) = (Table::new(), Moment::now());
        let [holder, next, other] = [Owner::random(), Owner::random(), Owner::random()];
        let held = claim(holder, SECOND);
        assert!(table.try_join(&held, now).is_some());
        let mut places = [next, other, next].map(|owner| queued(table.join(&claim(owner, SECOND), now)));
        assert!(table.release(&held, now));
        assert_eq!(places.each_mut().map(|place| place.try_recv().is_ok()), [true, false, true]);
    }

    #[test]
    fn a_lease_that_ends_passes_over_who_has_left() {
        let (mut table, start) = (Table::new(), Moment::now());
        let held = claim(Owner::random(), SECOND);
        assert!(table.try_join(&held, start).is_some());
        let gone = queued(table.join(&claim(Owner::random(), SECOND), start));
        let mut next = queued(table.join(&claim(Owner::random(), SECOND), start));
        drop(gone);
        table.settle(&held.key, start.saturating_add(SECOND));
        assert!(next.try_recv().is_ok());
    }

    #[test]
    fn who_has_left_is_passed_over() {
        let (mut table, now) = (Table::new(), Moment::now());
        let held = claim(Owner::random(), SECOND);
        assert!(table.try_join(&held, now).is_some());
        let gone = queued(table.join(&claim(Owner::random(), SECOND), now));
        let mut next = queued(table.join(&claim(Owner::random(), SECOND), now));
        drop(gone);
        assert!(table.release(&held, now));
        assert!(next.try_recv().is_ok());
    }

    #[test]
    fn expired_locks_that_nobody_looks_at_do_not_pile_up() {
        let (mut table, mut now) = (Table::new(), Moment::now());
        for name in 0..10_000 {
            let key = LockKey::new(name.to_string()).unwrap();
            assert!(table.try_join(&Claim::new(key, Owner::random(), Lease::fixed(SECOND)), now).is_some());
            now = now.saturating_add(SECOND / 10);
        }
        assert!(table.len() <= SWEEP_FLOOR, "{}", table.len());
    }
}
