//! The keeper: the one task of a `Locks` that renews leases, ends them on time, and gives back what was dropped.
//!
//! All its calls run side by side in one set, so that a slow one delays no other. Each call carries a guard that puts its work
//! back on the agenda if it is dropped or panics, so nothing is forgotten when a runtime ends.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::debt::Debt;
use super::{BoxFuture, Driver, Due, Held, Orphan, State};
use crate::clock::sleep_until;
use crate::{Effect, Error, ErrorKind, LossReason, Moment, Renew, Renewal, Result};

/// At most this many leases travel in one call of `renew`.
const BATCH: usize = 1_000;

/// How long the keeper stays armed after the last activity, so that a lock that is taken and given back in a loop does not
/// wake it each time.
const TICK: std::time::Duration = std::time::Duration::from_secs(1);

/// Says that a keeper runs. Dropped with its task, it says that none does, and wakes those who can start another.
#[derive(Debug)]
pub(super) struct Alive {
    driver: Arc<Driver>,
}

impl Alive {
    pub(super) fn new(driver: &Arc<Driver>) -> Self {
        Self { driver: Arc::clone(driver) }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let mut state = self.driver.state();
        state.keeper_runs = false;
        state.planned = None;
        let held: Vec<_> = state.agenda.values().filter_map(Due::lease).cloned().collect();
        let forsaken = state.take_forsaken();
        drop(state);
        drop(forsaken);
        for held in held {
            held.wake();
        }
        self.driver.queue.wake_all();
        self.driver.settled.notify_waiters();
    }
}

impl Due {
    pub(super) fn lease(&self) -> Option<&Arc<Held>> {
        match self {
            Self::Lease(held) => Some(held),
            Self::Debt(_) | Self::Listen(_) => None,
        }
    }
}

/// What is to be done now.
#[derive(Default)]
struct Work {
    leases: Vec<Arc<Held>>,
    debts: Vec<(u64, Debt)>,
    orphans: Vec<Orphan>,
    listen: Vec<Arc<Held>>,
}

pub(super) async fn keep(alive: Alive) {
    let driver = &alive.driver;
    let mut calls: FuturesUnordered<BoxFuture<()>> = FuturesUnordered::new();
    loop {
        for call in start(driver, driver.take_due(Moment::now())) {
            // A backend that panics must not end the renewal of all other locks; the call's guard puts its work back.
            calls.push(Box::pin(AssertUnwindSafe(call).catch_unwind().map(|outcome| {
                if outcome.is_err() {
                    tracing::error!("a backend panicked in the keeper; its work is tried again");
                }
            })));
        }
        let Some(plan) = driver.plan(calls.is_empty()) else { return };
        tokio::select! {
            biased;
            Some(()) = calls.next(), if !calls.is_empty() => {}
            () = driver.wake.notified() => {}
            () = until(plan) => {}
        }
    }
}

async fn until(moment: Option<Moment>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Makes calls of the work; leases that are lost need none.
fn start(driver: &Arc<Driver>, work: Work) -> Vec<BoxFuture<()>> {
    let mut calls: Vec<BoxFuture<()>> = Vec::new();
    let now = Moment::now();
    let mut due = Vec::new();
    for held in work.leases {
        if driver.finish_if_lost(&held) {
            continue;
        }
        match held.begin_renewal(now) {
            Some(ttl) => due.push((held, ttl)),
            None => driver.reconsider(&held),
        }
    }
    while !due.is_empty() {
        let rest = due.split_off(due.len().min(BATCH));
        calls.push(Box::pin(Round { driver: Arc::clone(driver), leases: due }.renew()));
        due = rest;
    }
    for (id, debt) in work.debts {
        let paying = Paying { driver: Arc::clone(driver), id, left: None };
        let driver = Arc::clone(driver);
        calls.push(Box::pin(async move { paying.end(debt.pay(&driver).await) }));
    }
    for Orphan { call, debt } in work.orphans {
        let id = driver.new_id();
        driver.state().debts.insert(id, debt);
        let paying = Paying { driver: Arc::clone(driver), id, left: None };
        calls.push(Box::pin(async move { paying.end(call.await) }));
    }
    for held in work.listen {
        let driver = Arc::clone(driver);
        calls.push(Box::pin(listen(driver, held)));
    }
    calls
}

/// Waits for the backend's word that a grant is lost.
async fn listen(driver: Arc<Driver>, held: Arc<Held>) {
    let Some(signal) = held.grant.loss.clone() else { return };
    tokio::select! {
        biased;
        () = held.ended() => {}
        () = signal.fired() => driver.lose(&held, LossReason::NotHeld),
    }
}

/// One batch of renewals in flight.
struct Round {
    driver: Arc<Driver>,
    leases: Vec<(Arc<Held>, std::time::Duration)>,
}

impl Round {
    async fn renew(mut self) {
        for (held, _) in &self.leases {
            // While it is in flight only the deadline is on the agenda.
            self.driver.reconsider(held);
        }
        let answers = {
            let batch: Vec<_> = self.leases.iter().map(|(held, ttl)| Renew::new(&held.grant, *ttl)).collect();
            self.driver.backend.renew(&batch).await
        };
        let mut answers = answers.into_iter();
        for (held, _) in std::mem::take(&mut self.leases) {
            let answer = answers.next().unwrap_or_else(|| Err(unanswered(&self.driver)));
            end_renewal(&self.driver, &held, answer);
        }
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        for (held, _) in std::mem::take(&mut self.leases) {
            end_renewal(&self.driver, &held, Err(unanswered(&self.driver)));
        }
    }
}

fn unanswered(driver: &Driver) -> Error {
    let says = "the renewal ended without an answer; it is tried again";
    driver.error(ErrorKind::Backend, "renew", says).with_effect(Effect::Unknown)
}

fn end_renewal(driver: &Arc<Driver>, held: &Arc<Held>, answer: Result<Renewal>) {
    if let Err(error) = &answer {
        tracing::debug!(key = %held.grant.claim.key, %error, "a renewal failed");
    }
    if held.end_renewal(answer) {
        driver.owe(Debt::of_lease(held));
    }
    if !driver.finish_if_lost(held) {
        driver.reconsider(held);
    }
}

/// One debt being paid.
struct Paying {
    driver: Arc<Driver>,
    id: u64,
    /// What is left of it; none while it is not known.
    left: Option<Option<Debt>>,
}

impl Paying {
    fn end(mut self, left: Option<Debt>) {
        self.left = Some(left);
    }
}

impl Drop for Paying {
    fn drop(&mut self) {
        let mut state = self.driver.state();
        let left = match self.left.take() {
            Some(left) => left,
            // The call was dropped or panicked: what it was to pay is still owed.
            None => state.debts.get(&self.id).cloned().and_then(|debt| debt.put_off("the call was interrupted")),
        };
        match left {
            Some(debt) => {
                self.driver.put(&mut state, debt.due, self.id, Due::Debt(self.id));
                state.debts.insert(self.id, debt);
            }
            None => {
                state.debts.remove(&self.id);
            }
        }
        drop(state);
        self.driver.settled.notify_waiters();
    }
}

impl Driver {
    /// Takes what is due from the agenda, and renewals that will be soon, so that they travel together.
    fn take_due(&self, now: Moment) -> Work {
        let mut state = self.state();
        let mut work = Work { orphans: std::mem::take(&mut state.orphans), ..Work::default() };
        let mut longest_ttl = std::time::Duration::ZERO;
        while let Some(entry) = state.agenda.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, id), due) = entry.remove_entry();
            match due {
                Due::Lease(held) => {
                    held.replace_due(None);
                    longest_ttl = longest_ttl.max(held.longest_ttl());
                    work.leases.push(held);
                }
                Due::Debt(id) => {
                    if let Some(debt) = state.debts.get(&id) {
                        work.debts.push((id, debt.clone()));
                    }
                }
                Due::Listen(held) => {
                    debug_assert_ne!(id, held.id, "it has an id of its own");
                    work.listen.push(held);
                }
            }
        }
        if !longest_ttl.is_zero() {
            let soon = now.saturating_add(longest_ttl / 30);
            let leases = state.agenda.range(..=(soon, u64::MAX)).filter_map(|(_, due)| due.lease().cloned());
            // They stay on the agenda: each decides by its own ttl whether it is due soon.
            work.leases.extend(leases.collect::<Vec<_>>());
        }
        work
    }

    /// When to wake next; none at the end: nobody is left, and nothing is owed.
    fn plan(&self, idle: bool) -> Option<Option<Moment>> {
        let mut state = self.state();
        let State { agenda, orphans, debts, .. } = &*state;
        if idle && state.handles_gone && agenda.is_empty() && orphans.is_empty() && debts.is_empty() {
            // Under the same lock, so that whoever comes now starts another.
            state.keeper_runs = false;
            return None;
        }
        let next = agenda.keys().next().map(|(moment, _)| *moment);
        let was_active = std::mem::take(&mut state.active);
        let next = next.or_else(|| was_active.then(|| Moment::now().saturating_add(TICK)));
        state.planned = next;
        Some(next)
    }
}
