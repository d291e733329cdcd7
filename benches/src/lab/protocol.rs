//! What the lab and a contender say to each other: a line of JSON each.

use std::time::Duration;

use lock_core::{Effect, ErrorKind, Lease};
use lock_testkit::history::Event;
use serde::{Deserialize, Serialize};

/// A line to a contender.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) id: u64,
    pub(crate) ask: Ask,
}

/// A line from a contender.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// Something happened: written down the moment it does, so that a contender that is killed has told of it.
    Event(Event),
    /// What became of the ask of this number.
    Answer { id: u64, answer: Answer },
}

/// What a contender is asked to do. `client` names one of its clients, `hold` and `claim` something that it keeps.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// Makes a client with connections of its own.
    Connect {
        client: String,
        strategy: String,
        urls: Vec<String>,
        limits: Limits,
    },
    /// Waits for the lock for so long.
    Acquire {
        client: String,
        wanted: Wanted,
        within: Duration,
        hold: String,
    },
    /// Tries once.
    TryAcquire {
        client: String,
        wanted: Wanted,
        hold: String,
    },
    /// Stands for "a fresh client can get the lock within the bound": acquires, and gives back.
    Probe {
        client: String,
        wanted: Wanted,
        bound: Duration,
    },
    /// Drops the future of an earlier ask.
    Cancel {
        id: u64,
    },
    Release {
        hold: String,
    },
    /// Drops the guard.
    Drop {
        hold: String,
    },
    Extend {
        hold: String,
        ttl: Duration,
    },
    /// Looks whether the guard still says that it is held, and acts on it.
    Look {
        hold: String,
    },
    /// Waits until the guard says that it is lost.
    Lost {
        hold: String,
    },
    /// Reads a guarded resource.
    Read {
        client: String,
        resource: Resource,
    },
    /// Writes it, with the token of the hold if there is one.
    Write {
        client: String,
        resource: Resource,
        value: u64,
        hold: Option<String>,
        /// The write is sent now, and is on its way until there is a file of this name.
        gate: Option<String>,
    },
    /// Waits until another has written, then reads, adds one and writes: the body of a critical section.
    Increment {
        client: String,
        resource: Resource,
        hold: Option<String>,
    },
    /// If the guard says that it is held, writes a guarded resource by its right. The resource counts what it accepts, so that
    /// the order of the writes is known, however many write at once.
    WriteHeld {
        resource: Resource,
        hold: String,
    },
    /// The backend itself, without the driver's care: tries to acquire for a claim, which is kept.
    RawAcquire {
        client: String,
        wanted: Wanted,
        claim: String,
    },
    RawRenew {
        claim: String,
        ttl: Duration,
    },
    RawRelease {
        claim: String,
    },
    RawAbandon {
        claim: String,
    },
    /// Whom the store names as the holder.
    Inspect {
        client: String,
        key: String,
    },
    /// Removes the lock, whoever holds it.
    ForceRelease {
        client: String,
        key: String,
    },
    /// Blocks the thread that runs it.
    Block {
        time: Duration,
    },
    /// What the process's clocks say.
    Clocks,
}

/// A lock that is wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) key: String,
    pub(crate) ttl: Duration,
    pub(crate) renewed: bool,
    /// The owner's number, if it is not to be drawn.
    pub(crate) owner: Option<String>,
}

impl Wanted {
    pub(crate) fn lease(&self) -> Lease {
        if self.renewed { Lease::renewed(self.ttl) } else { Lease::fixed(self.ttl) }
    }
}

/// How patient a client is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// How long one request may take.
    pub(crate) request: Duration,
    /// After what silence ZooKeeper ends its session.
    pub(crate) session: Duration,
    /// After what time without a store an acquire fails; the driver's default if none.
    pub(crate) unavailable_after: Option<Duration>,
    /// How many replicas must have a lock; none where nobody asks.
    pub(crate) replicas: Option<u32>,
}

/// A resource that a lock guards. Its name in the history is the path or the key, with `+f` where tokens are checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Resource {
    /// A row of a SQLite table.
    Sqlite { file: String, fenced: bool },
    /// A hash of Redis.
    Redis { url: String, key: String, fenced: bool },
}

/// What became of an ask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Done,
    Granted {
        token: Option<u64>,
        remaining: Duration,
    },
    Busy,
    Released,
    NotHeld,
    /// The guard says that it is held, for so long.
    Held {
        remaining: Duration,
    },
    /// The guard says that it is lost, for this reason.
    Lost {
        reason: String,
    },
    Renewed {
        remaining: Duration,
    },
    Undone {
        settled: bool,
    },
    Holder {
        held: bool,
    },
    Value {
        value: u64,
    },
    Refused,
    /// Nanoseconds of each clock.
    Clocks {
        realtime: u64,
        monotonic: u64,
        boottime: u64,
        lab: u64,
    },
    Cancelled,
    Error {
        kind: String,
        /// Whether it certainly had no effect.
        without_effect: bool,
        text: String,
    },
}

impl Answer {
    pub(crate) fn error(error: &lock_core::Error) -> Self {
        Self::Error {
            kind: format!("{:?}", error.kind()),
            without_effect: error.effect() == Effect::None,
            text: error.to_string(),
        }
    }

    /// Whether it is an error of this kind.
    pub(crate) fn is_error(&self, wanted: ErrorKind) -> bool {
        matches!(self, Self::Error { kind, .. } if *kind == format!("{wanted:?}"))
    }
}
