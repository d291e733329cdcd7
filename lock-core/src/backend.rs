use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use crate::flag::Flag;
use crate::{Claim, FencingToken, Grant, Guarantees, LockKey, Renew, Renewal, Result};

/// A way of keeping a lock in a store. [`Locks`](crate::Locks) drives it; users do not call it.
///
/// One call is one logical attempt: a backend does not retry what may have been applied, because the retry policy is the
/// driver's. (A request that was certainly never sent may go to another endpoint.) **Every call ends in bounded time**, by a
/// limit per request that the backend keeps itself; only [`acquire`](Backend::acquire) may wait for longer, and then for
/// its turn and not for a reply. A call's future may be dropped only together with its runtime; the driver runs it to its
/// end. Errors keep the rule of [`Effect`](crate::Effect): `None` only if the request cannot have been applied.
///
/// Each line under `# Contract` is a trial of the conformance suite in `lock-testkit`.
#[async_trait]
pub trait Backend: Debug + Send + Sync + 'static {
    /// The strategy's name in errors and tables, such as `redis-token`.
    fn name(&self) -> &str;

    /// What this backend promises, as it is configured.
    fn guarantees(&self) -> Guarantees;

    /// Tries once to get the lock.
    ///
    /// # Contract
    ///
    /// - A free lock is granted; a held one answers `None`, which is not an error.
    /// - The grant carries the ttl that the store gave, and `sent_at` from just before the request that started it.
    /// - The same claim again finds its own grant, restarts its ttl and counts once, where the guarantees say so.
    /// - The same owner under another claim is granted again where the strategy is re-entrant, and refused elsewhere.
    /// - A failed attempt changes nothing that [`abandon`](Backend::abandon) does not undo.
    /// - A ttl that the store cannot keep is refused before anything is sent.
    ///
    /// # Errors
    ///
    /// Any kind but `TimedOut` and `Lost`.
    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>>;

    /// Waits until the lock is granted or `stop` is fired.
    ///
    /// # Contract
    ///
    /// - `None` only after `stop`, and then the place in any queue is given up.
    /// - A grant that was on its way when `stop` came is returned, not dropped.
    /// - The end of the holder's lease is noticed without any message.
    /// - Once the store has said "busy", [`Stop::report_waiting`] has been called.
    /// - An idle waiter sends next to nothing.
    ///
    /// # Errors
    ///
    /// As for [`try_acquire`](Backend::try_acquire). A wait that fails has given up its place or says `Effect::Unknown`.
    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>>;

    /// Restarts the ttl of each grant; the answers are in the order of the batch, one for each.
    ///
    /// # Contract
    ///
    /// - A grant that is no longer ours answers `Lost` and is never made again.
    /// - The new ttl replaces the old one and is never added to it.
    /// - One failed renewal does not fail the others.
    ///
    /// # Errors
    ///
    /// Each answer has its own; `Lost` only if the store said that the lock is not ours.
    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>>;

    /// Gives one grant back.
    ///
    /// # Contract
    ///
    /// - It frees its own lock and wakes a waiter.
    /// - A lock that another has taken meanwhile is left alone, and the answer is `NotHeld`, where the guarantees say so.
    /// - A second release of the same grant answers `NotHeld` and changes nothing.
    /// - One release ends one hold of a re-entrant lock.
    ///
    /// # Errors
    ///
    /// Any kind but `TimedOut` and `Lost`. With effect `Unknown` the lock may be free.
    async fn release(&self, grant: &Grant) -> Result<Release>;

    /// Undoes whatever requests of `claim` may have done, also those whose replies never came.
    ///
    /// # Contract
    ///
    /// - What the claim holds is free afterwards; what others hold is left alone.
    /// - A claim that left nothing is no error.
    /// - It may be repeated.
    ///
    /// # Errors
    ///
    /// Any kind but `TimedOut` and `Lost`; the driver repeats it until the claim's ttl is over.
    async fn abandon(&self, claim: &Claim) -> Result<Undone>;

    /// Looks at a lock without changing it.
    ///
    /// # Contract
    ///
    /// - It says whether the lock is held, and of the rest what the store knows.
    ///
    /// # Errors
    ///
    /// As for [`try_acquire`](Backend::try_acquire).
    async fn inspect(&self, key: &LockKey) -> Result<Inspection>;

    /// The keys held now whose names begin with `prefix`, in no order.
    ///
    /// # Contract
    ///
    /// - Every held key of this backend's own namespace that begins with the prefix, byte for byte, is listed once.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the store cannot tell our keys from others'; else as for [`inspect`](Backend::inspect).
    async fn list(&self, prefix: &str) -> Result<Vec<LockKey>>;

    /// Frees the lock, whoever holds it. The holder finds out at its next renewal.
    ///
    /// # Contract
    ///
    /// - The lock is free afterwards, waiters are woken, and the former holder's renewal answers `Lost`.
    /// - A free lock answers `NotHeld`.
    ///
    /// # Errors
    ///
    /// As for [`release`](Backend::release).
    async fn force_release(&self, key: &LockKey) -> Result<Release>;

    /// Ends what the backend keeps open: sessions, subscriptions. Called last, once.
    ///
    /// # Contract
    ///
    /// - It ends in bounded time, also with the store down.
    ///
    /// # Errors
    ///
    /// Where a session could not be ended cleanly; its locks then end with their leases.
    async fn close(&self) -> Result<()>;
}

/// How the driver tells a waiting [`Backend::acquire`] to give up. Clones share one signal.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    fired: Flag,
    waiting: Flag,
}

impl Stop {
    /// A stop that has not been fired.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells the wait to give up its place and end.
    pub fn fire(&self) {
        self.fired.raise();
    }

    /// Whether it has been fired.
    #[must_use]
    pub fn is_fired(&self) -> bool {
        self.fired.is_raised()
    }

    /// Waits until it is fired.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost if the future is dropped.
    pub async fn fired(&self) {
        self.fired.raised().await;
    }

    /// Tells the driver that the store has answered and that the call now waits for its turn: from here on the caller's
    /// limit means contention, not failure.
    pub fn report_waiting(&self) {
        self.waiting.raise();
    }

    /// Whether [`report_waiting`](Stop::report_waiting) has been called.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_raised()
    }

    /// Waits until the backend reports that it waits for its turn.
    pub(crate) async fn waiting(&self) {
        self.waiting.raised().await;
    }
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a failed release is an error, so there is no third answer")]
#[must_use = "`NotHeld` means that the lock was lost before it was given back"]
pub enum Release {
    /// The lock was ours, and is given back.
    Released,
    /// The lock was not ours any more.
    NotHeld,
}

/// What an [`abandon`](Backend::abandon) achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "either something can still land or nothing can")]
pub enum Undone {
    /// Nothing of the claim is left, and nothing of it can appear any more.
    Settled,
    /// Nothing of the claim is left now, but a request that is still on its way may land; it then lives as long as its ttl.
    MayStillLand,
}

/// What a look at a lock found. What the store does not know is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Whether somebody holds it.
    pub held: bool,
    /// The holder, as the store writes it.
    pub holder: Option<String>,
    /// The holder's label.
    pub label: Option<String>,
    /// The holder's fencing token.
    pub fencing_token: Option<FencingToken>,
    /// How long the entry will live if nobody renews it.
    pub remaining: Option<Duration>,
    /// How many wait.
    pub waiters: Option<u64>,
}
