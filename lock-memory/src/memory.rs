use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{
    Backend, Claim, Effect, Error, ErrorKind, Exclusion, Expiry, Fencing, Grant, Guarantees, Inspection, Lease,
    LockKey, Moment, NodeFailure, OwnerCheck, Release, Renew, Renewal, Result, Stop, Undone, WakeUp, wait,
};
use tokio::sync::oneshot;

use crate::table::{Joined, Table};

const NAME: &str = "memory";

/// Locks that live in a table of this process.
///
/// Clones share the table, so two [`Locks`](lock_core::Locks) made of clones contend for the same locks. A key that nobody
/// holds or waits for costs nothing.
///
/// Waiters stand in a queue, and a release hands the lock to the first of them. A free lock therefore has no waiters, and
/// [`try_acquire`](Backend::try_acquire) cannot overtake one: while somebody waits, it finds the lock held. The same owner
/// may acquire again what it holds, also past the queue; each of its claims has a ttl of its own, and the lock is free
/// when the last of them has ended. Fencing tokens come from one counter of the table and grow over all of its keys.
#[derive(Clone)]
pub struct Memory {
    table: Arc<Mutex<Table>>,
}

impl Memory {
    /// The shortest ttl: 1 ms, the tick of tokio's timers.
    pub const MIN_TTL: Duration = Duration::from_millis(1);

    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self { table: Arc::new(Mutex::new(Table::new())) }
    }

    /// The table is consistent between any two statements that can panic, so a poisoned lock says nothing about it.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("keys", &self.table().len()).finish()
    }
}

#[async_trait]
impl Backend for Memory {
    fn name(&self) -> &str {
        NAME
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            exclusion: Exclusion::WhileLeaseHolds,
            fencing: Fencing::ProcessLife,
            fair: true,
            reentrant: true,
            idempotent_acquire: true,
            release_check: OwnerCheck::Atomic,
            renew_check: OwnerCheck::Atomic,
            frees_after_crash: true,
            trusts_client_clock: false,
            wake_up: WakeUp::Queue,
            node_failure: NodeFailure::EndsHolders,
            expiry: Expiry::Entry,
            min_ttl: Self::MIN_TTL,
            ttl_step: Duration::from_nanos(1),
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        check_ttl(claim.lease.ttl(), "acquire", &claim.key)?;
        Ok(self.table().try_join(claim, Moment::now()))
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        check_ttl(claim.lease.ttl(), "acquire", &claim.key)?;
        let joined = self.table().join(claim, Moment::now());
        let grant = match joined {
            Joined::Granted(grant) => return Ok(Some(grant)),
            Joined::Queued(grant) => grant,
        };
        let mut place = Place { memory: self, claim, grant };
        stop.report_waiting();
        loop {
            let ends = self.table().settle(&claim.key, Moment::now());
            tokio::select! {
                biased;
                grant = &mut place.grant => return grant.map(Some).map_err(|closed| abandoned(claim).with_source(closed)),
                () = stop.fired() => return Ok(place.give_up()),
                () = nap(ends) => {}
            }
        }
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        let mut table = self.table();
        let now = Moment::now();
        let renew = |Renew { grant, ttl, .. }: &Renew<'_>| {
            check_ttl(*ttl, "renew", &grant.claim.key)?;
            if table.renew(&grant.claim, *ttl, now) {
                return Ok(Renewal::new(now, *ttl));
            }
            let says = "the lock is not ours any more: its lease has ended or it was freed by force; stop the work";
            Err(Error::new(ErrorKind::Lost, Effect::None, NAME, "renew", says).with_key(&grant.claim.key))
        };
        batch.iter().map(renew).collect()
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        Ok(answer(self.table().release(&grant.claim, Moment::now())))
    }

    async fn abandon(&self, claim: &Claim) -> Result<Undone> {
        self.table().abandon(claim, Moment::now());
        Ok(Undone::Settled)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection> {
        Ok(self.table().inspect(key, Moment::now()))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockKey>> {
        Ok(self.table().held(prefix, Moment::now()))
    }

    async fn force_release(&self, key: &LockKey) -> Result<Release> {
        Ok(answer(self.table().force_release(key, Moment::now())))
    }

    /// Does nothing: the table ends with its last clone.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// A place in the queue, given up when it is dropped.
struct Place<'a> {
    memory: &'a Memory,
    claim: &'a Claim,
    grant: oneshot::Receiver<Grant>,
}

impl Place<'_> {
    /// Gives up the place, and takes the grant if it is already there.
    fn give_up(&mut self) -> Option<Grant> {
        // After this no grant can be delivered, so what is not there now never comes.
        self.grant.close();
        self.grant.try_recv().ok()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let undelivered = self.give_up().is_some();
        let mut table = self.memory.table();
        if undelivered {
            table.release(self.claim, Moment::now());
        } else {
            table.settle(&self.claim.key, Moment::now());
        }
    }
}

/// Sleeps until the holder's lease ends. At most the usual floor, because it may have become shorter meanwhile, and because
/// tokio's timers stand still while the machine is suspended.
async fn nap(ends: Option<Moment>) {
    let left = ends.map_or(wait::FLOOR, |ends| ends.remaining().min(wait::FLOOR));
    tokio::time::sleep(left).await;
}

fn answer(released: bool) -> Release {
    if released { Release::Released } else { Release::NotHeld }
}

fn check_ttl(ttl: Duration, operation: &'static str, key: &LockKey) -> Result<()> {
    if (Memory::MIN_TTL..=Lease::MAX_TTL).contains(&ttl) {
        return Ok(());
    }
    let says = format!("a ttl of {ttl:?} is out of range; ask for 1 ms to 365 days");
    Err(Error::new(ErrorKind::InvalidInput, Effect::None, NAME, operation, says).with_key(key))
}

fn abandoned(claim: &Claim) -> Error {
    let says = "the claim was abandoned while it waited; make a new claim";
    Error::new(ErrorKind::Rejected, Effect::None, NAME, "acquire", says).with_key(&claim.key)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use lock_core::Owner;

    use super::*;

    const LONG: Lease = Lease::fixed(Duration::from_secs(30));

    fn claim(key: &str, lease: Lease) -> Claim {
        Claim::new(LockKey::new(key).unwrap(), Owner::random(), lease)
    }

    async fn take(memory: &Memory, claim: &Claim) -> Grant {
        memory.try_acquire(claim).await.unwrap().expect("the lock is free")
    }

    /// Polls `future` once; it must not be ready.
    fn start<F: Future>(future: std::pin::Pin<&mut F>) {
        assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_notices_the_end_of_the_lease_to_the_millisecond() {
        let memory = Memory::new();
        let held = take(&memory, &claim("a", Lease::fixed(Duration::from_millis(12_345)))).await;
        let grant = memory.acquire(&claim("a", LONG), &Stop::new()).await.unwrap().unwrap();
        assert_eq!(grant.sent_at.saturating_duration_since(held.sent_at), Duration::from_millis(12_345));
        assert_eq!(memory.release(&held).await.unwrap(), Release::NotHeld);
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_that_has_arrived_survives_the_stop() {
        let memory = Memory::new();
        let held = take(&memory, &claim("a", LONG)).await;
        let (waiting, stop) = (claim("a", LONG), Stop::new());
        let mut wait = pin!(memory.acquire(&waiting, &stop));
        start(wait.as_mut());
        stop.fire();
        assert_eq!(memory.release(&held).await.unwrap(), Release::Released);
        let grant = wait.await.unwrap().expect("it was handed over before the wait could end");
        assert_eq!(memory.release(&grant).await.unwrap(), Release::Released);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_wait_gives_back_the_grant_that_it_was_handed() {
        let memory = Memory::new();
        let held = take(&memory, &claim("a", LONG)).await;
        let (first, second, stop) = (claim("a", LONG), claim("a", LONG), Stop::new());
        let mut next = pin!(memory.acquire(&second, &stop));
        {
            let mut dropped = pin!(memory.acquire(&first, &stop));
            start(dropped.as_mut());
            start(next.as_mut());
            assert_eq!(memory.release(&held).await.unwrap(), Release::Released);
            assert_eq!(memory.inspect(&first.key).await.unwrap().waiters, Some(1));
        }
        assert_eq!(next.await.unwrap().unwrap().claim.id, second.id);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_wait_leaves_the_queue() {
        let memory = Memory::new();
        let held = take(&memory, &claim("a", LONG)).await;
        {
            let (waiting, stop) = (claim("a", LONG), Stop::new());
            let mut wait = pin!(memory.acquire(&waiting, &stop));
            start(wait.as_mut());
            assert!(stop.is_waiting());
            assert_eq!(memory.inspect(&waiting.key).await.unwrap().waiters, Some(1));
        }
        assert_eq!(memory.inspect(&held.claim.key).await.unwrap().waiters, Some(0));
        assert_eq!(memory.release(&held).await.unwrap(), Release::Released);
        assert_eq!(format!("{memory:?}"), "Memory { keys: 0 }");
    }

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_claim_stops_waiting() {
        let memory = Memory::new();
        let held = take(&memory, &claim("a", LONG)).await;
        let (waiting, stop) = (claim("a", LONG), Stop::new());
        let mut wait = pin!(memory.acquire(&waiting, &stop));
        start(wait.as_mut());
        assert_eq!(memory.abandon(&waiting).await.unwrap(), Undone::Settled);
        assert_eq!(wait.await.unwrap_err().effect(), Effect::None);
        assert_eq!(memory.release(&held).await.unwrap(), Release::Released);
        assert_eq!(memory.table().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn ten_thousand_names_leave_nothing() {
        let memory = Memory::new();
        for name in 0..10_000 {
            let held = take(&memory, &claim(&name.to_string(), LONG)).await;
            let (waiting, stop) = (claim(&name.to_string(), LONG), Stop::new());
            let mut wait = pin!(memory.acquire(&waiting, &stop));
            start(wait.as_mut());
            assert_eq!(memory.release(&held).await.unwrap(), Release::Released);
        }
        assert_eq!(memory.table().len(), 0);
    }
}
