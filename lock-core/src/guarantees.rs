use std::time::Duration;

/// What a strategy promises, as plain data: the comparison, the docs and the conformance suite are driven by it.
///
/// It can be built by a literal and has no defaults on purpose: whoever writes a backend decides every line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a new property must be decided by every backend")]
pub struct Guarantees {
    /// When two holders exclude each other.
    pub exclusion: Exclusion,
    /// Where fencing tokens come from, and so what they survive.
    pub fencing: Fencing,
    /// Whether waiters are served in the order in which they came.
    pub fair: bool,
    /// Whether the same owner may acquire again what it holds.
    pub reentrant: bool,
    /// Whether a repeated acquire of one claim finds its own grant, instead of locking itself out.
    pub idempotent_acquire: bool,
    /// How a release makes sure that it frees only its own lock.
    pub release_check: OwnerCheck,
    /// How a renewal makes sure that it prolongs only its own lock.
    pub renew_check: OwnerCheck,
    /// Whether a holder that crashes at any point leaves a lock that ends by itself.
    pub frees_after_crash: bool,
    /// Whether exclusion depends on the wall clocks of the clients.
    pub trusts_client_clock: bool,
    /// How a waiter learns that the lock is free.
    pub wake_up: WakeUp,
    /// What happens to held locks when a node of the store fails and loses its memory.
    pub node_failure: NodeFailure,
    /// What ends an entry of the store that nobody renews.
    pub expiry: Expiry,
    /// The shortest ttl; shorter ones are refused.
    pub min_ttl: Duration,
    /// The unit in which the store counts a ttl; other values are rounded up to it.
    pub ttl_step: Duration,
}

/// When two holders exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exclusion {
    /// It may break with no fault of ours: a race or a clock is enough.
    BestEffort,
    /// No two holders before their deadlines, as long as the store keeps its data and its clock does not jump.
    WhileLeaseHolds,
}

/// Where fencing tokens come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fencing {
    /// There are none.
    None,
    /// A counter that starts anew with the process.
    ProcessLife,
    /// The greater of the last token plus one and the server's clock: goes back only if both data and clock do.
    ServerClock,
    /// A number that the store's consensus orders.
    Consensus,
}

/// How a release or a renewal makes sure that it touches only its own lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OwnerCheck {
    /// Not at all: it hits whoever holds.
    None,
    /// It compares, then acts, in two steps; the lock can change hands in between.
    Racy,
    /// The store compares and acts in one step.
    Atomic,
}

/// How a waiter learns that the lock is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WakeUp {
    /// It asks again and again.
    Poll,
    /// The release wakes all waiters, and they race.
    Push,
    /// The release wakes the next waiter only.
    Queue,
}

/// What happens to held locks when a node of the store fails and loses its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeFailure {
    /// The holders end with it, because they live in the same process.
    EndsHolders,
    /// The locks are gone, and somebody else can take them at once.
    LosesLocks,
    /// The locks stand as long as the nodes that keep their data are a majority. Where the store does not bring a node that
    /// lost its data up to date again (Redlock), that is a majority of those that granted.
    SurvivesMinority,
}

/// What ends an entry of the store that nobody renews.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expiry {
    /// Its own ttl.
    Entry,
    /// The end of a session that other grants may keep alive; an entry that ends earlier must be deleted.
    Session,
}
