use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::{
    Backend, Claim, ClaimId, Effect, Error, ErrorKind, Exclusion, Expiry, Fencing, FencingToken, Grant, Guarantees,
    Inspection, LockKey, LossSignal, Moment, NodeFailure, Owner, OwnerCheck, Release, Renew, Renewal, Result, Stop,
    Undone, WakeUp,
};

/// A store in memory that does as it is told: each call takes the next step written for its operation, and answers at once
/// where none is.
#[derive(Clone, Debug)]
pub(super) struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    guarantees: Guarantees,
    /// How often each call yields before and after it takes effect.
    yields: usize,
    entries: HashMap<LockKey, Entry>,
    steps: HashMap<&'static str, VecDeque<Step>>,
    default_steps: HashMap<&'static str, Step>,
    calls: Vec<Call>,
    token: u64,
    waiting: usize,
    in_flight: usize,
    most_in_flight: usize,
    signal: Option<LossSignal>,
}

#[derive(Debug)]
struct Entry {
    owner: Owner,
    claims: Vec<ClaimId>,
    until: Moment,
    token: u64,
}

/// What happens to one call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Answer,
    /// Applied after the first pause, answered after the second.
    Slow(Duration, Duration),
    /// Never sent: no effect.
    Refused,
    /// Applied, and the reply lost after a pause.
    ReplyLost(Duration),
    /// Not applied, and nobody knows, after a pause.
    RequestLost(Duration),
    /// Refused for good.
    Rejected,
    Panic,
}

/// One call that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) operation: &'static str,
    pub(super) key: String,
    pub(super) claim: Option<ClaimId>,
    pub(super) at: Moment,
    pub(super) ttl: Duration,
    /// How many leases travelled together.
    pub(super) batch: usize,
}

impl Store {
    pub(super) fn new() -> Self {
        let guarantees = Guarantees {
            exclusion: Exclusion::WhileLeaseHolds,
            fencing: Fencing::ProcessLife,
            fair: false,
            reentrant: true,
            idempotent_acquire: true,
            release_check: OwnerCheck::Atomic,
            renew_check: OwnerCheck::Atomic,
            frees_after_crash: true,
            trusts_client_clock: false,
            wake_up: WakeUp::Push,
            node_failure: NodeFailure::EndsHolders,
            expiry: Expiry::Entry,
            min_ttl: Duration::from_millis(10),
            ttl_step: Duration::from_millis(1),
        };
        let state = State {
            guarantees,
            yields: 0,
            entries: HashMap::new(),
            steps: HashMap::new(),
            default_steps: HashMap::new(),
            calls: Vec::new(),
            token: 0,
            waiting: 0,
            in_flight: 0,
            most_in_flight: 0,
            signal: None,
        };
        Self(Arc::new(Inner { state: Mutex::new(state), changed: Notify::new() }))
    }

    pub(super) fn with_guarantees(self, change: impl FnOnce(&mut Guarantees)) -> Self {
        change(&mut self.state().guarantees);
        self
    }

    pub(super) fn with_yields(self, yields: usize) -> Self {
        self.state().yields = yields;
        self
    }

    /// Grants carry this signal from now on.
    pub(super) fn set_signal(&self, signal: &LossSignal) {
        self.state().signal = Some(signal.clone());
    }

    /// The next calls of `operation` go through these steps.
    pub(super) fn script(&self, operation: &'static str, steps: impl IntoIterator<Item = Step>) {
        self.state().steps.entry(operation).or_default().extend(steps);
    }

    /// Every call of `operation` without a step of its own goes through this one.
    pub(super) fn always(&self, operation: &'static str, step: Step) {
        self.state().default_steps.insert(operation, step);
    }

    /// Every call of every operation.
    pub(super) fn always_all(&self, step: Step) {
        for operation in ["try_acquire", "acquire", "renew", "release", "abandon"] {
            self.always(operation, step);
        }
    }

    pub(super) fn calls(&self, operation: &'static str) -> Vec<Call> {
        self.state().calls.iter().filter(|call| call.operation == operation).cloned().collect()
    }

    pub(super) fn operations(&self) -> Vec<&'static str> {
        self.state().calls.iter().map(|call| call.operation).collect()
    }

    pub(super) fn holds(&self, key: &str) -> bool {
        self.remaining(key).is_some()
    }

    pub(super) fn remaining(&self, key: &str) -> Option<Duration> {
        let mut state = self.state();
        let key = LockKey::new(key).unwrap();
        state.expire(&key);
        state.entries.get(&key).map(|entry| entry.until.remaining())
    }

    /// Whether nothing is held and nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        let mut state = self.state();
        state.entries.retain(|_, entry| entry.until > Moment::now());
        state.entries.is_empty() && state.waiting == 0 && state.in_flight == 0
    }

    pub(super) fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// How many renewals were under way at once.
    pub(super) fn most_in_flight(&self) -> usize {
        self.state().most_in_flight
    }

    /// Another takes the lock, whoever holds it.
    pub(super) fn seize(&self, key: &str, ttl: Duration) {
        let mut state = self.state();
        state.token += 1;
        let (until, token) = (Moment::now().saturating_add(ttl), state.token);
        let entry = Entry { owner: Owner::random(), claims: vec![ClaimId::random()], until, token };
        state.entries.insert(LockKey::new(key).unwrap(), entry);
    }

    /// Nobody holds it any more.
    pub(super) fn clear(&self, key: &str) {
        self.state().entries.remove(&LockKey::new(key).unwrap());
        self.0.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    async fn yields(&self) {
        let yields = self.state().yields;
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
    }

    /// Notes the call, and takes it through its step; `apply` is what it does to the store.
    async fn step<T>(
        &self,
        operation: &'static str,
        claim: Option<&Claim>,
        ttl: Duration,
        batch: usize,
        apply: impl FnOnce(&mut State) -> T,
    ) -> Result<T> {
        let step = {
            let mut state = self.state();
            let key = claim.map_or(String::new(), |claim| claim.key.to_string());
            let claim = claim.map(|claim| claim.id);
            state.calls.push(Call { operation, key, claim, at: Moment::now(), ttl, batch });
            let step = state.steps.get_mut(operation).and_then(VecDeque::pop_front);
            step.or_else(|| state.default_steps.get(operation).copied()).unwrap_or(Step::Answer)
        };
        let failed = |kind, effect| Err(Error::new(kind, effect, "scripted", operation, "as the script says"));
        self.yields().await;
        let (before, after) = match step {
            Step::Answer => (Duration::ZERO, Duration::ZERO),
            Step::Slow(before, after) => (before, after),
            Step::Refused => return failed(ErrorKind::Unavailable, Effect::None),
            Step::ReplyLost(after) => (Duration::ZERO, after),
            Step::RequestLost(pause) => {
                tokio::time::sleep(pause).await;
                return failed(ErrorKind::Unavailable, Effect::Unknown);
            }
            Step::Rejected => return failed(ErrorKind::Rejected, Effect::None),
            Step::Panic => {
                self.state().in_flight = 0;
                panic!("as the script says")
            }
        };
        if !before.is_zero() {
            tokio::time::sleep(before).await;
        }
        let answer = apply(&mut self.state());
        if matches!(operation, "release" | "abandon") {
            self.0.changed.notify_waiters();
        }
        if !after.is_zero() {
            tokio::time::sleep(after).await;
        }
        self.yields().await;
        match step {
            Step::ReplyLost(_) => failed(ErrorKind::Unavailable, Effect::Unknown),
            _ => Ok(answer),
        }
    }

    async fn try_once(&self, operation: &'static str, claim: &Claim) -> Result<Option<Grant>> {
        let sent_at = Moment::now();
        let ttl = claim.lease.ttl();
        self.step(operation, Some(claim), ttl, 1, |state| state.grant(claim, sent_at)).await
    }
}

impl State {
    fn expire(&mut self, key: &LockKey) {
        if self.entries.get(key).is_some_and(|entry| entry.until <= Moment::now()) {
            self.entries.remove(key);
        }
    }

    fn grant(&mut self, claim: &Claim, sent_at: Moment) -> Option<Grant> {
        self.expire(&claim.key);
        let until = Moment::now().saturating_add(claim.lease.ttl());
        let next = self.token + 1;
        let entry = self.entries.entry(claim.key.clone()).or_insert_with(|| Entry {
            owner: claim.owner,
            claims: Vec::new(),
            until,
            token: next,
        });
        if entry.owner != claim.owner {
            return None;
        }
        self.token = self.token.max(entry.token);
        if !entry.claims.contains(&claim.id) {
            entry.claims.push(claim.id);
        }
        entry.until = entry.until.max(until);
        let grant =
            Grant::new(claim.clone(), sent_at, claim.lease.ttl()).with_fencing_token(FencingToken::new(entry.token));
        Some(match &self.signal {
            Some(signal) => grant.with_loss_signal(signal.clone()),
            None => grant,
        })
    }

    fn renew(&mut self, claim: &Claim, ttl: Duration) -> bool {
        self.expire(&claim.key);
        match self.entries.get_mut(&claim.key) {
            Some(entry) if entry.claims.contains(&claim.id) => {
                entry.until = Moment::now().saturating_add(ttl);
                true
            }
            _ => false,
        }
    }

    fn release(&mut self, claim: &Claim) -> Release {
        self.expire(&claim.key);
        let Some(entry) = self.entries.get_mut(&claim.key) else { return Release::NotHeld };
        let before = entry.claims.len();
        entry.claims.retain(|id| *id != claim.id);
        let released = entry.claims.len() < before;
        if entry.claims.is_empty() {
            self.entries.remove(&claim.key);
        }
        if released { Release::Released } else { Release::NotHeld }
    }
}

/// Counts one that waits, for as long as it lives.
struct Waiting<'a>(&'a Store);

impl<'a> Waiting<'a> {
    fn new(store: &'a Store) -> Self {
        store.state().waiting += 1;
        Self(store)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

#[async_trait]
impl Backend for Store {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn guarantees(&self) -> Guarantees {
        self.state().guarantees
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.try_once("try_acquire", claim).await
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        let _waiting = Waiting::new(self);
        loop {
            let changed = self.0.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if let Some(grant) = self.try_once("acquire", claim).await? {
                return Ok(Some(grant));
            }
            stop.report_waiting();
            let expiry = self.remaining(claim.key.as_str()).unwrap_or_default();
            tokio::select! {
                biased;
                () = stop.fired() => return Ok(None),
                () = changed => {}
                () = tokio::time::sleep(expiry) => {}
            }
        }
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        {
            let mut state = self.state();
            state.in_flight += 1;
            state.most_in_flight = state.most_in_flight.max(state.in_flight);
        }
        let sent_at = Moment::now();
        let first = batch.first().map(|renew| (&renew.grant.claim, renew.ttl));
        let (claim, ttl) = first.unzip();
        let answer = self
            .step("renew", claim, ttl.unwrap_or_default(), batch.len(), |state| {
                batch.iter().map(|renew| state.renew(&renew.grant.claim, renew.ttl)).collect::<Vec<_>>()
            })
            .await;
        self.state().in_flight -= 1;
        match answer {
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
            Ok(answers) => answers
                .into_iter()
                .zip(batch)
                .map(|(ours, renew)| {
                    if ours {
                        Ok(Renewal::new(sent_at, renew.ttl))
                    } else {
                        Err(Error::new(ErrorKind::Lost, Effect::None, "scripted", "renew", "not ours"))
                    }
                })
                .collect(),
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        let claim = &grant.claim;
        self.step("release", Some(claim), Duration::ZERO, 1, |state| state.release(claim)).await
    }

    async fn abandon(&self, claim: &Claim) -> Result<Undone> {
        let apply = |state: &mut State| {
            let _left_nothing = state.release(claim);
            Undone::MayStillLand
        };
        self.step("abandon", Some(claim), Duration::ZERO, 1, apply).await
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection> {
        Ok(Inspection { held: self.holds(key.as_str()), ..Inspection::default() })
    }

    async fn list(&self, _prefix: &str) -> Result<Vec<LockKey>> {
        Ok(self.state().entries.keys().cloned().collect())
    }

    async fn force_release(&self, key: &LockKey) -> Result<Release> {
        self.clear(key.as_str());
        Ok(Release::Released)
    }

    async fn close(&self) -> Result<()> {
        self.step("close", None, Duration::ZERO, 1, |_| ()).await
    }
}
