//! The fault catalogue: a file for each family, and in it for each scenario how it is made with real parts, how it shows, and
//! what it must do to whom.
//!
//! What is expected is data: for each kind of strategy whether it breaks or holds, and why. It is held against what is
//! observed both ways. That it agrees with what the strategies promise in their
//! [`Guarantees`](lock_core::Guarantees) is a test of its own.

mod acquire;
mod clocks;
mod controls;
mod network;
mod pause;
mod reentry;
mod release;
mod renew;
mod session;
mod state;
mod waiting;

use std::time::Duration;

use futures_util::future::BoxFuture;
use lock_testkit::history::{History, Observable};

use crate::lab::{Figure, Lab, Stage};
use crate::strategy::Kind;
use crate::tell::Transcript;
use crate::{Failure, Strategy};

/// Every scenario, in the order of the catalogue.
pub(crate) fn all() -> impl Iterator<Item = &'static Scenario> {
    let families = [
        controls::ALL,
        acquire::ALL,
        pause::ALL,
        clocks::ALL,
        release::ALL,
        renew::ALL,
        state::ALL,
        network::ALL,
        waiting::ALL,
        session::ALL,
        reentry::ALL,
    ];
    families.into_iter().flatten()
}

/// A fault, and what it does to whom.
pub(crate) struct Scenario {
    /// Its number in the catalogue of `docs/safety.md`; `+f` stands for "with the fencing token checked".
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// What happens, step by step.
    pub(crate) steps: &'static [&'static str],
    /// How a strategy that it breaks shows it: at least one of these is seen.
    pub(crate) breaks_by: &'static [Observable],
    /// What may be seen whatever the strategy, because the scenario is made of it.
    pub(crate) beside: &'static [Observable],
    /// What it must do to each kind of strategy; every kind stands in it once.
    pub(crate) expected: &'static [(&'static [Kind], Expected)],
    pub(crate) play: for<'a> fn(&'a Stage<'a>) -> BoxFuture<'a, Result<(), Failure>>,
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
    /// What was measured; one above its limit breaks.
    pub(crate) figures: Vec<Figure>,
}

impl Outcome {
    pub(crate) const fn not_played(expected: Expected) -> Self {
        Self { expected, observed: Observed::NotPlayed, seen: Vec::new(), figures: Vec::new() }
    }

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
    /// The scenario of this number.
    pub(crate) fn find(id: &str) -> Option<&'static Self> {
        all().find(|scenario| scenario.id.eq_ignore_ascii_case(id))
    }

    /// What it must do to a strategy of this kind.
    pub(crate) fn expect(&self, kind: Kind) -> Expected {
        let row = self.expected.iter().find(|(kinds, _)| kinds.contains(&kind));
        row.map_or(Expected::CannotApply("nobody has decided what it does"), |(_, expected)| *expected)
    }

    /// Plays it. One that could not be made, because the machine was too busy for a short lease, is made again.
    pub(crate) async fn run(&self, lab: &Lab, strategy: &Strategy) -> Outcome {
        const TRIES: usize = 3;

        let expected = self.expect(strategy.kind());
        let mut outcome = Outcome::not_played(expected);
        if let Expected::CannotApply(_) = expected {
            return outcome;
        }
        for _ in 0..TRIES {
            (outcome, _) = self.play_once(lab, strategy, None).await;
            if !matches!(outcome.observed, Observed::NotMade(_)) {
                break;
            }
        }
        outcome
    }

    /// Plays it once; the stage has the history.
    pub(crate) async fn play_once<'a>(
        &self,
        lab: &'a Lab,
        strategy: &Strategy,
        transcript: Option<Transcript>,
    ) -> (Outcome, Stage<'a>) {
        /// Nothing takes as long; a step that hangs is not waited for.
        const LIMIT: Duration = Duration::from_secs(60);

        // Letters, digits and dashes stand in every store's names as they are, so what goes over the wire can be picked by it.
        let id: String = self.id.chars().filter(char::is_ascii_alphanumeric).collect();
        let key = format!("{id}-{}-{:x}", strategy.name(), fastrand::u64(..));
        let stage = Stage::new(lab, *strategy, key, History::on(lab.now()), transcript);
        let (observed, seen) = match tokio::time::timeout(LIMIT, (self.play)(&stage)).await {
            Ok(Ok(())) => self.judge(&stage.history, &stage.figures()),
            Ok(Err(error)) => (Observed::NotMade(error.to_string()), Vec::new()),
            Err(_) => (Observed::NotMade(format!("it was not over within {LIMIT:?}")), Vec::new()),
        };
        let figures = stage.figures();
        (Outcome { expected: self.expect(strategy.kind()), observed, seen, figures }, stage)
    }

    fn judge(&self, history: &History, figures: &[Figure]) -> (Observed, Vec<String>) {
        let events = history.events();
        let seen: Vec<_> = Observable::ALL.into_iter().flat_map(|observable| observable.find(&events)).collect();
        let is_seen = |observables: &[Observable]| seen.iter().any(|seen| observables.contains(&seen.observable));
        let others: Vec<_> = Observable::ALL
            .into_iter()
            .filter(|observable| !self.breaks_by.contains(observable) && !self.beside.contains(observable))
            .collect();
        let observed = if is_seen(&others) {
            Observed::BreaksOtherwise
        } else if is_seen(self.breaks_by) || figures.iter().any(Figure::is_too_much) {
            Observed::Breaks
        } else {
            Observed::Holds
        };
        (observed, seen.iter().map(ToString::to_string).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_scenario_decides_about_every_kind_once_and_says_why() {
        let mut ids = HashSet::new();
        for scenario in all() {
            assert!(ids.insert(scenario.id), "{} is there twice", scenario.id);
            assert!(scenario.steps.len() > 1 && !scenario.breaks_by.is_empty(), "{}", scenario.id);
            for kind in Kind::ALL {
                let rows = scenario.expected.iter().filter(|(kinds, _)| kinds.contains(&kind)).count();
                assert_eq!(rows, 1, "{} says {rows} times what it does to {kind:?}", scenario.id);
                let (Expected::Breaks(why) | Expected::Holds(why) | Expected::CannotApply(why)) = scenario.expect(kind);
                assert!(!why.is_empty(), "{} does not say why for {kind:?}", scenario.id);
            }
        }
    }

    #[test]
    fn an_outcome_is_documented_both_ways() {
        let outcome = |expected, observed| Outcome { expected, observed, seen: Vec::new(), figures: Vec::new() };
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

    #[test]
    fn a_figure_breaks_above_its_limit() {
        let herd = Scenario::find("S53").unwrap();
        let judge = |value, at_most| herd.judge(&History::new(), &[Figure { of: "", value, at_most }]).0;
        assert_eq!(judge(10.0, Some(10.0)), Observed::Holds);
        assert_eq!(judge(11.0, Some(10.0)), Observed::Breaks);
        assert_eq!(judge(11.0, None), Observed::Holds);
    }
}
