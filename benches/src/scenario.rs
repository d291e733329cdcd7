//! The faults, one file each: how it is made with real parts, how it shows, and whom it must break.
//!
//! What is expected of a strategy follows from its [`Guarantees`] and from nothing else, so that a new strategy needs no entry
//! here, and a wrong promise is found out.

mod s01;
mod s07;
mod s11;
mod s18;
mod s19;

use std::time::Duration;

use futures_util::future::BoxFuture;
use lock_core::{Error, ErrorKind, Guarantees, Lease, Lock, LockGuard, Release};
use lock_memory::Memory;
use lock_testkit::fault::Proxy;
use lock_testkit::history::{Actor, History, Hold, Observable};

use crate::strategy::{Seat, Strategy};
use crate::{Failure, Stores};

/// Every scenario, by its number in the catalogue of `docs/safety.md`.
pub(crate) const ALL: [Scenario; 6] =
    [s01::CRASH_BETWEEN, s07::PAUSE, s07::PAUSE_FENCED, s11::FAST_CLOCK, s18::LATE_RELEASE, s19::GET_THEN_DEL];

/// A fault, and what it does to whom.
pub(crate) struct Scenario {
    /// Its number in the catalogue; `+f` stands for "with the fencing token checked".
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// What happens, step by step.
    pub(crate) steps: &'static [&'static str],
    /// How a strategy that it breaks shows it: at least one of these is seen.
    pub(crate) breaks_by: &'static [Observable],
    /// What is seen whatever the strategy, because the scenario is made of it.
    pub(crate) beside: &'static [Observable],
    /// Whether it is made by holding one of the strategy's requests in the network.
    in_the_network: bool,
    expect: fn(&Guarantees) -> Expected,
    play: for<'a> fn(&'a Stage<'a>) -> BoxFuture<'a, Result<(), Failure>>,
}

/// What a scenario must do to a strategy, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Breaks(&'static str),
    Holds(&'static str),
    CannotApply(&'static str),
}

/// What a scenario did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    Breaks,
    Holds,
    /// Something broke that the scenario is not about.
    BreaksOtherwise,
    /// It could not be made, for this reason.
    NotMade(String),
    NotPlayed,
}

/// A scenario's outcome for one strategy.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) expected: Expected,
    pub(crate) observed: Observed,
    /// What was seen, with the events that show it.
    pub(crate) seen: Vec<String>,
}

impl Outcome {
    /// Whether the docs said so.
    pub(crate) fn is_as_documented(&self) -> bool {
        matches!(
            (self.expected, &self.observed),
            (Expected::Breaks(_), Observed::Breaks)
                | (Expected::Holds(_), Observed::Holds)
                | (Expected::CannotApply(_), Observed::NotPlayed)
        )
    }
}

impl Scenario {
    /// What it must do to a strategy that promises this.
    pub(crate) fn expect(&self, guarantees: &Guarantees) -> Expected {
        (self.expect)(guarantees)
    }

    /// Plays it. One that could not be made, because the machine was too busy for a short lease, is made again.
    pub(crate) async fn run(&self, stores: &Stores, strategy: &Strategy) -> Result<Outcome, Failure> {
        const TRIES: usize = 3;

        let guarantees = strategy.guarantees(&Seat::at(stores, &Memory::new())).await?;
        let mut expected = self.expect(&guarantees);
        if self.in_the_network && !strategy.is_on_one_redis() && !matches!(expected, Expected::CannotApply(_)) {
            expected =
                Expected::CannotApply("the proxy cannot pick this store's requests yet, only those of one Redis");
        }
        let mut outcome = Outcome { expected, observed: Observed::NotPlayed, seen: Vec::new() };
        if let Expected::CannotApply(_) = expected {
            return Ok(outcome);
        }
        for number in 1..=TRIES {
            let key = format!("scenario/{}/{number}", self.id);
            let stage = Stage { stores, strategy, guarantees, memory: Memory::new(), history: History::new(), key };
            match (self.play)(&stage).await {
                Ok(()) => {
                    (outcome.observed, outcome.seen) = self.judge(&stage.history);
                    return Ok(outcome);
                }
                Err(error) => outcome.observed = Observed::NotMade(error.to_string()),
            }
        }
        Ok(outcome)
    }

    fn judge(&self, history: &History) -> (Observed, Vec<String>) {
        let events = history.events();
        let seen: Vec<_> = Observable::ALL.into_iter().flat_map(|observable| observable.find(&events)).collect();
        let is_seen = |observables: &[Observable]| seen.iter().any(|seen| observables.contains(&seen.observable));
        let others: Vec<_> = Observable::ALL
            .into_iter()
            .filter(|observable| !self.breaks_by.contains(observable) && !self.beside.contains(observable))
            .collect();
        let observed = if is_seen(&others) {
            Observed::BreaksOtherwise
        } else if is_seen(self.breaks_by) {
            Observed::Breaks
        } else {
            Observed::Holds
        };
        (observed, seen.iter().map(ToString::to_string).collect())
    }
}

/// Where a scenario is played: one strategy, one key, a history of its own.
struct Stage<'a> {
    stores: &'a Stores,
    strategy: &'a Strategy,
    guarantees: Guarantees,
    memory: Memory,
    history: History,
    key: String,
}

/// How long a step may take that needs no more than a lease to end. Wide, because machines are busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// A lease that outlives every scenario.
/// Within what `ZooKeeper` grants: half its session.
const LONG: Lease = Lease::fixed(Duration::from_secs(14));

impl Stage<'_> {
    /// A client of its own, on the straight way to the store.
    async fn player(&self, name: &'static str) -> Result<Player, Failure> {
        self.player_at(name, self.seat()).await
    }

    async fn player_at(&self, name: &'static str, seat: Seat) -> Result<Player, Failure> {
        let lock = self.strategy.connect(&seat).await?.lock(&self.key)?;
        Ok(Player { actor: self.history.actor(name), lock })
    }

    fn seat(&self) -> Seat {
        Seat { request_limit: PATIENCE, ..Seat::at(self.stores, &self.memory) }
    }

    /// The same, by way of a proxy.
    fn seat_behind(&self, proxy: &Proxy) -> Seat {
        Seat { url: self.stores.redis().url_at(proxy.addr()), ..self.seat() }
    }

    /// A fixed lease that is soon over: `at_least`, or the shortest that the strategy can keep.
    fn short(&self, at_least: Duration) -> Lease {
        Lease::fixed(at_least.max(self.guarantees.min_ttl))
    }
}

/// A client, who writes down what it does.
#[derive(Clone)]
struct Player {
    actor: Actor,
    lock: Lock,
}

impl Player {
    /// Acquires a lock that is free, or will be when a lease has ended.
    async fn acquire(&self, lease: Lease) -> Result<Holding, Failure> {
        let attempt = self.actor.acquiring(self.lock.key().as_str());
        match self.lock.clone().lease(lease).acquire_within(PATIENCE).await {
            Ok(guard) => {
                let hold = attempt.granted(guard.fencing_token(), guard.deadline());
                Ok(Holding { hold, guard })
            }
            Err(error) => {
                if error.kind() == ErrorKind::TimedOut {
                    attempt.busy();
                } else {
                    attempt.failed(error.effect());
                }
                Err(error.into())
            }
        }
    }

    /// Tries once.
    async fn try_acquire(&self, lease: Lease) -> Result<Option<Holding>, Failure> {
        let attempt = self.actor.acquiring(self.lock.key().as_str());
        match self.lock.clone().lease(lease).try_acquire().await {
            Ok(Some(guard)) => {
                let hold = attempt.granted(guard.fencing_token(), guard.deadline());
                Ok(Some(Holding { hold, guard }))
            }
            Ok(None) => {
                attempt.busy();
                Ok(None)
            }
            Err(error) => {
                attempt.failed(error.effect());
                Err(error.into())
            }
        }
    }
}

/// A lock that a player holds.
struct Holding {
    hold: Hold,
    guard: LockGuard,
}

impl Holding {
    /// Waits until the lease is over, and does not act from then on.
    async fn outlive_lease(&self) {
        self.guard.lost().await;
        self.hold.stopped();
    }

    async fn release(self) -> Result<Release, Error> {
        self.hold.releasing();
        let answer = self.guard.release().await;
        match &answer {
            Ok(answer) => self.hold.released(*answer),
            Err(error) => self.hold.release_failed(error.effect()),
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use lock_core::{Exclusion, Expiry, Fencing, NodeFailure, OwnerCheck, WakeUp};

    use super::*;

    const SOUND: Guarantees = Guarantees {
        exclusion: Exclusion::WhileLeaseHolds,
        fencing: Fencing::ServerClock,
        fair: false,
        reentrant: false,
        idempotent_acquire: true,
        release_check: OwnerCheck::Atomic,
        renew_check: OwnerCheck::Atomic,
        frees_after_crash: true,
        trusts_client_clock: false,
        wake_up: WakeUp::Push,
        node_failure: NodeFailure::LosesLocks,
        expiry: Expiry::Entry,
        min_ttl: Duration::from_millis(100),
        ttl_step: Duration::from_millis(1),
    };

    /// Each scenario's letter: `b`reaks, `h`olds, `-`.
    fn expected(guarantees: &Guarantees) -> String {
        let letter = |scenario: &Scenario| match scenario.expect(guarantees) {
            Expected::Breaks(_) => 'b',
            Expected::Holds(_) => 'h',
            Expected::CannotApply(_) => '-',
        };
        ALL.iter().map(letter).collect()
    }

    #[test]
    fn what_is_expected_follows_from_the_guarantees() {
        // S01, S07, S07+f, S11, S18, S19.
        assert_eq!(expected(&SOUND), "hbhhhh");
        assert_eq!(expected(&Guarantees { frees_after_crash: false, ..SOUND }), "bbhhhh");
        assert_eq!(expected(&Guarantees { fencing: Fencing::None, ..SOUND }), "hb-hhh");
        assert_eq!(expected(&Guarantees { trusts_client_clock: true, ..SOUND }), "hbhbhh");
        assert_eq!(expected(&Guarantees { release_check: OwnerCheck::Racy, ..SOUND }), "hbhhhb");
        assert_eq!(expected(&Guarantees { release_check: OwnerCheck::None, ..SOUND }), "hbhhbb");
        assert_eq!(expected(&Guarantees { node_failure: NodeFailure::EndsHolders, ..SOUND }), "-bhhh-");
    }

    #[test]
    fn an_outcome_is_documented_both_ways() {
        let outcome = |expected, observed| Outcome { expected, observed, seen: Vec::new() };
        for (expected, observed, documented) in [
            (Expected::Breaks(""), Observed::Breaks, true),
            (Expected::Breaks(""), Observed::Holds, false),
            (Expected::Holds(""), Observed::Holds, true),
            (Expected::Holds(""), Observed::Breaks, false),
            (Expected::Holds(""), Observed::BreaksOtherwise, false),
            (Expected::Breaks(""), Observed::BreaksOtherwise, false),
            (Expected::CannotApply(""), Observed::NotPlayed, true),
            (Expected::Holds(""), Observed::NotMade(String::new()), false),
        ] {
            assert_eq!(outcome(expected, observed.clone()).is_as_documented(), documented, "{expected:?} {observed:?}");
        }
    }
}
