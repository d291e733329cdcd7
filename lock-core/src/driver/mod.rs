//! What every lock needs whatever its store: the local queue, the retries, the keeper that renews and gives back.
//!
//! `Driver` is the state that the handles of one `Locks`, its guards and its keeper share. Locks are taken in this order: the
//! driver's own, a lease's, the local queue's; none is held over an await.

mod acquisition;
mod backoff;
mod debt;
mod held;
mod keeper;
mod queue;
mod returning;

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;

pub(crate) use acquisition::{Acquisition, Wanted};
use debt::Debt;
pub(crate) use held::Held;
use queue::LocalQueue;
pub(crate) use returning::give_back;

use crate::flag::Flag;
use crate::{Backend, Effect, Error, ErrorKind, LossReason, Moment, Options, Result};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) options: Options,
    pub(crate) queue: Arc<LocalQueue>,
    closing: Flag,
    state: Mutex<State>,
    /// Wakes the keeper.
    wake: Notify,
    /// Fired whenever a debt is settled, for `shutdown`.
    settled: Notify,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    agenda: BTreeMap<(Moment, u64), Due>,
    /// Everything that must be given back; a debt stays here until it is paid, so that a new keeper can go on with it.
    debts: HashMap<u64, Debt>,
    orphans: Vec<Orphan>,
    keeper_runs: bool,
    /// When the keeper will wake by itself.
    planned: Option<Moment>,
    /// Whether anything was put on the agenda since the keeper last looked.
    active: bool,
    handles_gone: bool,
}

#[derive(Clone, Debug)]
enum Due {
    Lease(Arc<Held>),
    Debt(u64),
    /// A signal of the backend to listen to.
    Listen(Arc<Held>),
}

/// A backend call whose caller has gone: it is run to its end, which says what is owed then. If the runtime ends before,
/// `debt` is.
struct Orphan {
    call: BoxFuture<Option<Debt>>,
    debt: Debt,
}

impl std::fmt::Debug for Orphan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Orphan").field("debt", &self.debt).finish_non_exhaustive()
    }
}

impl Driver {
    pub(crate) fn new(backend: Arc<dyn Backend>, options: Options) -> Self {
        Self {
            backend,
            options,
            queue: Arc::default(),
            closing: Flag::default(),
            state: Mutex::default(),
            wake: Notify::new(),
            settled: Notify::new(),
            next_id: AtomicU64::new(0),
        }
    }

    pub(crate) fn error(&self, kind: ErrorKind, operation: &'static str, says: impl Into<String>) -> Error {
        Error::new(kind, Effect::None, self.backend.name(), operation, says)
    }

    /// Refuses new work after `shutdown` has begun.
    pub(crate) fn check_open(&self, operation: &'static str) -> Result<()> {
        if self.closing.is_raised() {
            return Err(self.closed_error(operation));
        }
        Ok(())
    }

    fn closed_error(&self, operation: &'static str) -> Error {
        self.error(ErrorKind::Rejected, operation, "these locks are shut down; make a new `Locks`")
    }

    /// Starts the keeper unless it runs. Without a runtime nothing happens: the next call from within one starts it.
    pub(crate) fn ensure_keeper(self: &Arc<Self>) {
        let mut state = self.state();
        if state.keeper_runs {
            return;
        }
        let Some(runtime) = self.options.keeper_on.clone().or_else(|| Handle::try_current().ok()) else { return };
        state.keeper_runs = true;
        drop(state);
        // If the runtime is ending, the task is dropped at once, and its `Alive` says so.
        drop(runtime.spawn(keeper::keep(keeper::Alive::new(self))));
    }

    /// Keeps a grant from now on: renews it, ends it on time.
    pub(crate) fn keep(self: &Arc<Self>, held: &Arc<Held>) {
        let listens = held.grant.loss.is_some();
        let mut state = self.state();
        self.schedule(&mut state, held);
        if listens {
            self.put(&mut state, Moment::now(), self.new_id(), Due::Listen(Arc::clone(held)));
        }
        let keeper_runs = state.keeper_runs;
        drop(state);
        if !keeper_runs {
            self.ensure_keeper();
        }
        // A shutdown that has begun meanwhile may have looked before it was on the agenda.
        if self.closing.is_raised() {
            self.lose(held, LossReason::ShutDown);
        }
    }

    /// Stops keeping a grant.
    pub(crate) fn unkeep(&self, held: &Arc<Held>) {
        let mut state = self.state();
        if let Some(due) = held.replace_due(None) {
            state.agenda.remove(&(due, held.id));
        }
    }

    /// Looks at a lease again after its state has changed.
    pub(crate) fn reconsider(&self, held: &Arc<Held>) {
        self.schedule(&mut self.state(), held);
    }

    /// Gives back what its guard dropped. Neither blocks nor spawns.
    pub(crate) fn drop_guard(&self, held: &Arc<Held>) {
        held.give_back();
        self.unkeep(held);
        if held.owe() {
            self.owe(Debt::of_lease(held));
        }
    }

    /// Ends every lease and waits until nothing is owed any more.
    pub(crate) async fn shut_down(self: &Arc<Self>) {
        self.closing.raise();
        self.queue.wake_all();
        self.ensure_keeper();
        let held: Vec<_> = {
            let state = self.state();
            state.agenda.values().filter_map(Due::lease).cloned().collect()
        };
        for held in held {
            self.lose(&held, LossReason::ShutDown);
        }
        loop {
            let settled = self.settled.notified();
            let mut settled = std::pin::pin!(settled);
            settled.as_mut().enable();
            {
                let state = self.state();
                if state.orphans.is_empty() && !state.debts.values().any(Debt::is_unanswered) {
                    return;
                }
            }
            self.ensure_keeper();
            settled.await;
        }
    }

    /// No handle and no guard is left: the keeper ends when nothing is owed.
    pub(crate) fn release_handles(&self) {
        let mut state = self.state();
        state.handles_gone = true;
        let forsaken = state.take_forsaken();
        drop(state);
        drop(forsaken);
        self.wake.notify_one();
    }

    /// Ends a lease at once, and pays what that leaves owed.
    fn lose(&self, held: &Arc<Held>, reason: LossReason) {
        held.lose(reason);
        self.finish_if_lost(held);
    }

    /// If the lease is lost, takes it off the agenda, lets the next task contend, and tells the store where its entry would
    /// outlive it.
    fn finish_if_lost(&self, held: &Arc<Held>) -> bool {
        let Some(owes) = held.take_loss(self.backend.guarantees().expiry) else { return false };
        self.unkeep(held);
        if owes {
            self.owe(Debt::of_lease(held));
        }
        true
    }

    /// Puts a debt on the agenda; without a keeper those who wait here are woken, to start one.
    fn owe(&self, debt: Debt) {
        let id = self.new_id();
        let mut state = self.state();
        self.put(&mut state, debt.due, id, Due::Debt(id));
        state.debts.insert(id, debt);
        if !state.keeper_runs {
            drop(state);
            self.queue.wake_all();
        }
    }

    /// Takes over a call whose caller has gone.
    fn adopt(&self, orphan: Orphan) {
        let mut state = self.state();
        state.orphans.push(orphan);
        let forsaken = state.take_forsaken();
        if state.keeper_runs {
            self.wake.notify_one();
        } else {
            drop(state);
            self.queue.wake_all();
        }
        drop(forsaken);
    }

    fn schedule(&self, state: &mut State, held: &Arc<Held>) {
        let due = held.next_due();
        let old = held.replace_due(due);
        if old == due && old.is_some() {
            return;
        }
        if let Some(old) = old {
            state.agenda.remove(&(old, held.id));
        }
        if let Some(due) = due {
            self.put(state, due, held.id, Due::Lease(Arc::clone(held)));
        }
    }

    /// Puts something on the agenda, and wakes the keeper only for what is earlier than it plans.
    fn put(&self, state: &mut State, at: Moment, id: u64, due: Due) {
        state.agenda.insert((at, id), due);
        state.active = true;
        if state.planned.is_none_or(|planned| at < planned) {
            self.wake.notify_one();
        }
    }

    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether nothing is held, wanted or owed.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state();
        state.agenda.is_empty() && state.debts.is_empty() && state.orphans.is_empty() && self.queue.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The calls that nobody will ever run: no keeper does, and no handle is left that could start one. They hold the driver
    /// that holds them, so they must go.
    fn take_forsaken(&mut self) -> Vec<Orphan> {
        if self.handles_gone && !self.keeper_runs { std::mem::take(&mut self.orphans) } else { Vec::new() }
    }
}
