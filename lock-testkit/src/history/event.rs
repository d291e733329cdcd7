use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use lock_core::Moment;
use serde::{Deserialize, Serialize};

use super::nanos;

/// One thing that happened, as a line of JSON: `{"t_ns":1200,"actor":"a","key":"k","op":"acquire","phase":"ok","hold":7}`.
///
/// Fields that say nothing are left out. [`Actor`](super::Actor) and its kin write events that make sense; a program in
/// another language may write the lines itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// When, in nanoseconds by the history's clock: unless it was made on another, since the machine was started, suspend
    /// included (`CLOCK_BOOTTIME`).
    pub t_ns: u64,
    /// Who.
    pub actor: Arc<str>,
    /// The lock, or the resource that is read or written. Empty where the event is about all of them.
    pub key: Arc<str>,
    /// What was done.
    pub op: Op,
    /// How far it has come.
    pub phase: Phase,
    /// Which acquisition: the same number from its invocation to its release, in no other acquisition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<u64>,
    /// For whom, where one owner may hold a lock more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Arc<str>>,
    /// The fencing token of a grant, or the one that a write brought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Until when the grant or the renewal lets its holder act, or its holder believes to; for a probe or a waiter, until
    /// when it must have succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// What was read, written or counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// Which of the writes that a resource accepted this one was, by the resource's own count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

impl Event {
    /// An event of which no more is known. A [`History`](super::History) makes its own.
    #[must_use]
    pub fn new(t_ns: u64, actor: impl Into<Arc<str>>, key: impl Into<Arc<str>>, op: Op, phase: Phase) -> Self {
        Self {
            t_ns,
            actor: actor.into(),
            key: key.into(),
            op,
            phase,
            hold: None,
            owner: None,
            token: None,
            deadline_ns: None,
            value: None,
            position: None,
        }
    }

    /// Takes over what is left of a deadline on the process's own clock, which may disagree with the history's.
    ///
    /// The event's time was read before. If the process was stopped in between, the deadline comes out early, and nobody is
    /// accused wrongly.
    pub(super) fn lasts_until(&mut self, deadline: Moment) {
        self.must_be_by(deadline.remaining());
    }

    pub(super) fn must_be_by(&mut self, bound: Duration) {
        self.deadline_ns = Some(self.t_ns.saturating_add(nanos(bound)));
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Op {
    /// Getting the lock.
    Acquire,
    /// Renewing or extending its lease.
    Renew,
    /// Looking whether the lock is still believed to be held, and finding that it is.
    Affirm,
    /// Giving it back.
    Release,
    /// Ceasing to act without giving back: the holder has noticed a loss, or the actor has ended.
    Stop,
    /// Looking whether a fresh client can get the lock in time.
    Probe,
    /// Looking into the store: the actor is the one that it names as the holder.
    Inspect,
    /// Looking into the store: it counts so many holds of the owner.
    Count,
    /// Looking into the store: nobody holds the lock. With a deadline, the actor is its only waiter and must have it by then.
    Free,
    /// Reading the guarded resource.
    Read,
    /// Writing the guarded resource.
    Write,
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// It begins: what follows has not been sent.
    Invoke,
    /// It succeeded.
    Ok,
    /// Acquire: somebody else has the lock.
    Busy,
    /// Renew and release: the lock was not ours.
    NotHeld,
    /// It failed, and certainly had no effect. A write: it was refused.
    Fail,
    /// It failed, and may have had an effect.
    Unknown,
}

/// Writes events as lines of JSON.
///
/// # Errors
///
/// If `to` fails.
pub fn write_jsonl<'a>(events: impl IntoIterator<Item = &'a Event>, mut to: impl Write) -> io::Result<()> {
    for event in events {
        serde_json::to_writer(&mut to, event)?;
        to.write_all(b"\n")?;
    }
    to.flush()
}

/// Reads events from lines of JSON. A history of several files is read from one after the other: the checks put it in
/// order.
///
/// # Errors
///
/// If `from` fails, or a line is no event; the text names the line.
pub fn read_jsonl(from: impl BufRead) -> io::Result<Vec<Event>> {
    let mut events = Vec::new();
    for (number, line) in from.lines().enumerate() {
        let event = serde_json::from_str(&line?).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("line {} is no event: {error}", number + 1))
        })?;
        events.push(event);
    }
    Ok(events)
}
