use std::time::Duration;

use lock_testkit::simulation::{Clock, Nanos, nanos};

/// A Redis that keeps one lock as our scripts do, each of them one atomic step.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) clock: Clock,
    /// Until when it is away, by the lab's time.
    pub(super) away: Nanos,
    entry: Option<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    claim: u64,
    round: u64,
    /// By the node's clock.
    until: Nanos,
}

/// What is asked of a node; each is the script of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Acquire { claim: u64, round: u64, ttl: Duration },
    Renew { claim: u64, round: u64, ttl: Duration },
    Release { claim: u64, round: Option<u64> },
}

impl Node {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, away: 0, entry: None }
    }

    /// Does what is asked, at the lab's time `at`: yes or no.
    pub(super) fn apply(&mut self, at: Nanos, request: Request) -> bool {
        let now = self.clock.reading(at);
        let held = self.entry.filter(|entry| now < entry.until);
        self.entry = held;
        match (request, held) {
            (Request::Acquire { claim, round, ttl }, held) => {
                if held.is_some_and(|held| held.claim != claim || held.round > round) {
                    return false;
                }
                let until = held.map_or(Nanos::MIN, |held| held.until).max(now + nanos(ttl));
                self.entry = Some(Entry { claim, round, until });
            }
            (Request::Renew { claim, round, ttl }, Some(held)) if held.claim == claim => {
                let (round, until) = (held.round.max(round), held.until.max(now + nanos(ttl)));
                self.entry = Some(Entry { claim, round, until });
            }
            (Request::Release { claim, round }, Some(held)) if held.claim == claim => {
                if round.is_some_and(|round| held.round > round) {
                    return false;
                }
                self.entry = None;
            }
            (Request::Renew { .. } | Request::Release { .. }, _) => return false,
        }
        true
    }

    /// Loses its data, as a Redis without persistence does when it restarts.
    pub(super) fn forget(&mut self) {
        self.entry = None;
    }

    /// Whether nobody has its vote, at the lab's time `at`.
    pub(super) fn is_free(&self, at: Nanos) -> bool {
        let now = self.clock.reading(at);
        self.entry.is_none_or(|entry| entry.until <= now)
    }
}
