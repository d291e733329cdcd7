use std::time::Duration;

use lock_testkit::simulation::{Clock, Nanos, nanos};

/// A store of one lock, as a single Redis with scripts keeps it: each request is one atomic step, and an entry ends by the
/// store's own clock.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) clock: Clock,
    /// Whether a late request may bring the end nearer.
    shortens: bool,
    entry: Option<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    claim: u32,
    /// By the store's clock.
    until: Nanos,
}

/// What travels to the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) op: Op,
    /// The claim, by its number in this run.
    pub(super) claim: u32,
    pub(super) ttl: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Acquire,
    Renew,
    Release,
    /// A release that does not look whose lock it is: what some strategies do, and ours must not.
    BlindRelease,
    Abandon,
}

/// What travels back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Yes,
    /// Not this claim's; where another has it, for how long that will last.
    No(Option<Duration>),
    /// Nobody listens there: the request had no effect.
    Refused,
}

impl Store {
    pub(super) fn new(clock: Clock, shortens: bool) -> Self {
        Self { clock, shortens, entry: None }
    }

    /// Does what is asked, at the lab's time `at`.
    pub(super) fn apply(&mut self, at: Nanos, request: Request) -> Answer {
        let now = self.clock.reading(at);
        let until = now + nanos(request.ttl);
        self.entry = self.entry.filter(|entry| now < entry.until);
        match (request.op, &mut self.entry) {
            (Op::Acquire, None) => self.entry = Some(Entry { claim: request.claim, until }),
            (Op::BlindRelease, entry @ Some(_)) => *entry = None,
            (_, Some(entry)) if entry.claim != request.claim => {
                let remaining = u64::try_from(entry.until - now).expect("it has not ended");
                return Answer::No(Some(Duration::from_nanos(remaining)));
            }
            (Op::Acquire | Op::Renew, Some(entry)) if self.shortens => entry.until = until,
            (Op::Acquire | Op::Renew, Some(entry)) => entry.until = entry.until.max(until),
            (Op::Release | Op::Abandon, entry @ Some(_)) => *entry = None,
            (Op::Renew | Op::Release | Op::BlindRelease | Op::Abandon, None) => return Answer::No(None),
        }
        Answer::Yes
    }

    /// Loses its data, as a Redis without persistence does when it restarts.
    pub(super) fn forget(&mut self) {
        self.entry = None;
    }

    /// Whether nobody has it, at the lab's time `at`.
    pub(super) fn is_free(&self, at: Nanos) -> bool {
        let now = self.clock.reading(at);
        self.entry.is_none_or(|entry| entry.until <= now)
    }
}
