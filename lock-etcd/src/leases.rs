//! The leases of one client: which there are, how they are made, kept alive and ended, and how their loss is noticed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use etcd_client::{EventType, GetOptions, WatchResponse};
use lock_core::{Claim, ClaimId, Effect, Error, Moment, Result};
use tokio::task::JoinHandle;

use crate::endpoints::Endpoints;
use crate::error::{Failure, explain, invalid};
use crate::keys::{self, Layout};
use crate::lease::Lease;

/// The shortest ttl, and the unit in which the server counts one. A server whose election time is longer than two thirds of
/// this grants more.
pub(crate) const MIN_TTL: Duration = Duration::from_secs(1);

/// How long the watch rests after it ended; twice as long each time that it cannot be begun, up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

#[derive(Debug)]
pub(crate) struct Leases {
    endpoints: Arc<Endpoints>,
    layout: Layout,
    /// Tells our keys from those of other clients.
    pub(crate) instance: String,
    known: Mutex<Known>,
    /// Held while a session is made, so that two do not make two.
    making: tokio::sync::Mutex<()>,
    watch: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Known {
    /// The session of each ttl, in seconds, for new claims.
    sessions: HashMap<i64, Arc<Lease>>,
    /// All that somebody may still use.
    all: HashMap<i64, Weak<Lease>>,
}

impl Leases {
    pub(crate) fn new(endpoints: Arc<Endpoints>, layout: Layout) -> Self {
        let instance = format!("{:032x}", ClaimId::random().bits());
        Self {
            endpoints,
            layout,
            instance,
            known: Mutex::default(),
            making: Default::default(),
            watch: Mutex::default(),
        }
    }

    /// The lease for a claim: the session of its ttl, or one of its own. Either may have to be made.
    pub(crate) async fn of(self: &Arc<Self>, claim: &Claim, seconds: i64) -> Result<Arc<Lease>, Failure> {
        if claim.lease.is_renewed() {
            self.session(seconds).await
        } else {
            self.own(own_id(claim.id, seconds), seconds).await
        }
    }

    /// The session of this ttl. If nobody has used it for a while, the server may have ended it.
    pub(crate) async fn session(self: &Arc<Self>, seconds: i64) -> Result<Arc<Lease>, Failure> {
        if let Some(session) = self.usable_session(seconds) {
            return Ok(session);
        }
        let limit = self.endpoints.limit();
        let making = tokio::time::timeout(limit, self.making.lock()).await;
        let _making = making.map_err(|_elapsed| Failure::Limit(limit))?;
        if let Some(session) = self.usable_session(seconds) {
            return Ok(session);
        }
        let session = self.make(random_id(), seconds, true).await?;
        self.known().sessions.insert(seconds, Arc::clone(&session));
        Ok(session)
    }

    /// The lease of this id; made, unless it is there.
    pub(crate) async fn own(self: &Arc<Self>, id: i64, seconds: i64) -> Result<Arc<Lease>, Failure> {
        let known = self.known().all.get(&id).and_then(Weak::upgrade).filter(|lease| !lease.is_lost());
        match known {
            Some(lease) => Ok(lease),
            None => self.make(id, seconds, false).await,
        }
    }

    /// Restarts the ttl of a lease, unless somebody has done so since this was called.
    pub(crate) async fn keep_alive(&self, lease: &Lease) -> Result<(), Failure> {
        let asked = Moment::now();
        let limit = self.endpoints.limit();
        let keeping = tokio::time::timeout(limit, lease.keeping.lock()).await;
        let _keeping = keeping.map_err(|_elapsed| Failure::Limit(limit))?;
        if lease.is_lost() {
            return Err(Failure::LeaseGone);
        }
        if lease.alive_at() >= asked {
            return Ok(());
        }
        let sent_at = Moment::now();
        let answer = self.endpoints.keep_alive(lease.id).await;
        match &answer {
            Ok(()) => lease.restarted(sent_at),
            Err(Failure::LeaseGone) => self.lose(lease),
            Err(_unknown) => {}
        }
        answer
    }

    /// Ends a lease of a fixed grant, of which nothing is left. If that fails, it ends by itself.
    pub(crate) async fn end_own(&self, lease: &Lease) {
        if lease.is_session {
            return;
        }
        match self.endpoints.revoke(lease.id).await {
            Ok(()) | Err(Failure::LeaseGone) => self.forget(lease.id),
            Err(failure) => {
                let error = explain(failure, "revoke");
                tracing::debug!(lease = lease.id, %error, "a lease that nobody uses was not revoked; it ends with its ttl");
            }
        }
    }

    /// The leases under which this client may have put a place for the claim.
    pub(crate) fn that_may_hold(&self, claim: &Claim, seconds: i64) -> Vec<i64> {
        if !claim.lease.is_renewed() {
            return vec![own_id(claim.id, seconds)];
        }
        let known = self.known();
        let sessions = known.all.values().filter_map(Weak::upgrade);
        sessions.filter(|lease| lease.is_session && lease.seconds == seconds).map(|lease| lease.id).collect()
    }

    /// Notes that a tombstone was put under this lease.
    pub(crate) fn note_tombstone(&self, lease: i64) {
        if let Some(lease) = self.known().all.get(&lease).and_then(Weak::upgrade) {
            lease.note_tombstone();
        }
    }

    /// The server has ended this lease.
    pub(crate) fn lose(&self, lease: &Lease) {
        lease.lose();
        self.forget(lease.id);
    }

    pub(crate) fn marker(&self, lease: &Lease) -> String {
        self.layout.marker(&self.instance, lease.id)
    }

    /// Ends every lease, and with them every place that is left.
    pub(crate) async fn close(&self) -> Result<()> {
        if let Some(watch) = self.watch().take() {
            watch.abort();
        }
        let leases: Vec<_> =
            std::mem::take(&mut *self.known()).all.into_values().filter_map(|it| it.upgrade()).collect();
        let revoked = futures_util::future::join_all(leases.iter().map(|lease| self.endpoints.revoke(lease.id))).await;
        let mut outcome = Ok(());
        for (lease, answer) in leases.iter().zip(revoked) {
            match answer {
                Ok(()) | Err(Failure::LeaseGone) => lease.lose(),
                Err(failure) => outcome = outcome.and(Err(explain(failure, "close"))),
            }
        }
        outcome
    }

    /// Makes sure that the watch runs: it ends with the runtime that it was started on.
    pub(crate) fn ensure_watch(self: &Arc<Self>) {
        let mut watch = self.watch();
        if watch.as_ref().is_none_or(JoinHandle::is_finished) {
            *watch = Some(tokio::spawn(watch_markers(Arc::downgrade(self))));
        }
    }

    async fn make(self: &Arc<Self>, id: i64, seconds: i64, is_session: bool) -> Result<Arc<Lease>, Failure> {
        let mut sent_at = Moment::now();
        let granted = match self.endpoints.grant(id, seconds).await {
            Ok(granted) => granted,
            // A grant whose reply was lost, or the same claim again.
            Err(failure) if failure.is_known_lease() => {
                sent_at = Moment::now();
                self.endpoints.keep_alive(id).await?;
                self.endpoints.time_to_live(id).await?.1
            }
            Err(failure) => return Err(failure),
        };
        let granted = u64::try_from(granted).map_err(|_negative| Failure::Answer("a ttl below zero"))?;
        let lease = Arc::new(Lease::new(id, seconds, Duration::from_secs(granted), is_session, sent_at));
        let mut known = self.known();
        if known.all.len() == known.all.capacity() {
            // Before the table grows, those go that nobody uses.
            known.all.retain(|_, lease| lease.strong_count() > 0);
        }
        known.all.insert(id, Arc::downgrade(&lease));
        drop(known);
        self.ensure_watch();
        Ok(lease)
    }

    fn usable_session(&self, seconds: i64) -> Option<Arc<Lease>> {
        let known = self.known();
        let session = known.sessions.get(&seconds)?;
        let usable = !session.is_lost() && !session.is_full();
        usable.then(|| Arc::clone(session))
    }

    fn forget(&self, id: i64) {
        let mut known = self.known();
        known.all.remove(&id);
        known.sessions.retain(|_, session| session.id != id);
    }

    /// Those whose end the watch will tell, and which it must not have missed.
    fn marked(&self) -> Vec<Arc<Lease>> {
        self.known().all.values().filter_map(Weak::upgrade).filter(|lease| lease.is_marked()).collect()
    }

    fn note_deletions(&self, message: &WatchResponse) {
        let markers = self.layout.markers(&self.instance);
        for event in message.events().iter().filter(|event| event.event_type() == EventType::Delete) {
            let id = event.kv().and_then(|kv| keys::lease_of_marker(&markers, kv.key()));
            let lease = id.and_then(|id| self.known().all.get(&id).and_then(Weak::upgrade));
            if let Some(lease) = lease {
                self.lose(&lease);
            }
        }
    }

    /// Compares what is marked with what is there.
    async fn look_for_losses(&self) -> Result<(), Failure> {
        let marked = self.marked();
        let markers = self.layout.markers(&self.instance);
        let found = self.endpoints.get(markers.as_bytes(), GetOptions::new().with_prefix().with_keys_only()).await?;
        for lease in marked {
            let marker = self.marker(&lease);
            if !found.kvs().iter().any(|kv| kv.key() == marker.as_bytes()) {
                self.lose(&lease);
            }
        }
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        if let Some(watch) = self.watch().take() {
            watch.abort();
        }
    }
}

/// One watch for all leases of a client: each has a key, and the server deletes it when the lease ends.
async fn watch_markers(leases: Weak<Leases>) {
    let mut pause = PAUSES.0;
    while let Some(strong) = leases.upgrade() {
        let (endpoints, markers) = (Arc::clone(&strong.endpoints), strong.layout.markers(&strong.instance));
        // Looked at when the watch has begun, so nothing is missed between the two.
        let watch = match endpoints.watch_deletions(markers.as_bytes(), true).await {
            Ok(watch) => strong.look_for_losses().await.map(|()| watch),
            Err(failure) => Err(failure),
        };
        drop(strong);
        match watch {
            Ok((mut stream, at)) => {
                pause = PAUSES.0;
                while let Ok(Some(message)) = stream.message().await {
                    let Some(leases) = leases.upgrade() else { return };
                    leases.note_deletions(&message);
                    if message.canceled() {
                        break;
                    }
                }
                endpoints.rotate(at);
            }
            Err(failure) => {
                let error = explain(failure, "watch");
                tracing::debug!(%error, "the watch on our leases failed; it is tried again");
                pause = (pause * 2).min(PAUSES.1);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// A ttl in the unit in which the server counts it, rounded up.
pub(crate) fn whole_seconds(ttl: Duration, operation: &'static str) -> Result<i64> {
    if ttl < MIN_TTL {
        return Err(invalid(
            operation,
            format!("a ttl of {ttl:?} is below the minimum of {MIN_TTL:?}; ask for at least that"),
        ));
    }
    if ttl > lock_core::Lease::MAX_TTL {
        let says = format!("a ttl of {ttl:?} is above the maximum of 365 days; renew a shorter one");
        return Err(invalid(operation, says));
    }
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    Ok(i64::try_from(seconds).expect("365 days are few seconds"))
}

/// The lease of a fixed grant: always the same for a claim and a ttl, so that a repeat finds it, and so does an abandon.
pub(crate) fn own_id(claim: ClaimId, seconds: i64) -> i64 {
    positive((claim.bits() as u64).wrapping_add((seconds as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

fn random_id() -> i64 {
    positive(ClaimId::random().bits() as u64)
}

/// Lease ids are positive; zero means none.
fn positive(bits: u64) -> i64 {
    i64::try_from(bits >> 1).map_or(1, |id| id.max(1))
}

/// An error of a request that was about a lease alone: the claim's own requests have not been sent.
pub(crate) fn before_the_claim(failure: Failure, operation: &'static str) -> Error {
    explain(failure, operation).with_effect(Effect::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_rounded_up_and_never_truncated() {
        for (millis, seconds) in [(1_000, 1), (1_001, 2), (1_999, 2), (2_000, 2), (30_000, 30)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis), "acquire").unwrap(), seconds);
        }
        assert_eq!(whole_seconds(lock_core::Lease::MAX_TTL, "acquire").unwrap(), 31_536_000);
        for ttl in [Duration::ZERO, Duration::from_nanos(999_999_999), Duration::MAX] {
            let error = whole_seconds(ttl, "renew").unwrap_err();
            assert_eq!((error.kind(), error.effect()), (lock_core::ErrorKind::InvalidInput, Effect::None));
        }
    }

    #[test]
    fn the_lease_of_a_fixed_grant_follows_from_its_claim_and_ttl() {
        let claim = ClaimId::random();
        assert_eq!(own_id(claim, 5), own_id(claim, 5));
        assert_ne!(own_id(claim, 5), own_id(claim, 6));
        assert_ne!(own_id(claim, 5), own_id(ClaimId::random(), 5));
        assert!((0..1_000).all(|_| random_id() > 0) && positive(0) == 1 && positive(u64::MAX) > 0);
    }
}
