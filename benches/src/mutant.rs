//! Strategies that are wrong on purpose: each is one of ours with one flaw, and stands for a defect that has been published, or
//! that we could bring in by a careless change. The scenarios must catch every one of them, or they are too weak.

mod cancel;
mod clock;
mod deadline;
mod fence;
mod flawed;
mod majority;
mod owner;
mod release;
mod renewal;
mod retry;
mod script;
mod session;
mod ttl;
mod waiter;

use std::path::Path;

use crate::matrix::{self, Cell};
use crate::report::{Cell as Shown, Table, Tone};
use crate::scenario::{Expected, Observed, Scenario};
use crate::{Failure, Progress, Strategy};

/// A strategy with a flaw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutant {
    /// It claims to be of this strategy's kind, so what is expected of that is expected of it.
    pub(crate) strategy: Strategy,
    pub(crate) flaw: &'static str,
    /// The scenarios that catch it: each finds it broken where its kind holds.
    pub(crate) caught_by: &'static [&'static str],
}

/// Every mutant, in the order of the catalogue's families.
pub(crate) fn all() -> impl Iterator<Item = Mutant> {
    let ideas = [
        ttl::ALL,
        retry::ALL,
        owner::ALL,
        deadline::ALL,
        clock::ALL,
        release::ALL,
        renewal::ALL,
        fence::ALL,
        majority::ALL,
        cancel::ALL,
        waiter::ALL,
        session::ALL,
    ];
    ideas.into_iter().flatten().copied()
}

/// Without a fault a mutant must hold, or it shows no more than that it is no lock.
const NO_FAULT: &str = "C1";

/// What every mutant did in the scenarios that must catch it, and without a fault.
pub(crate) struct Hunt {
    played: Vec<(Mutant, Cell)>,
}

/// Plays every mutant without a fault, and in the scenarios that must catch it.
///
/// # Errors
///
/// If a lab cannot be started.
pub(crate) async fn hunt(program: &Path, progress: &mut Progress) -> Result<Hunt, Failure> {
    let mut played = Vec::new();
    for mutant in all() {
        for id in [NO_FAULT].iter().chain(mutant.caught_by) {
            let scenario = Scenario::find(id).ok_or_else(|| format!("no scenario {id} could catch a mutant"))?;
            played.push((mutant, scenario));
        }
    }
    let pairs = played.iter().map(|(mutant, scenario)| (*scenario, mutant.strategy)).collect();
    let cells = matrix::play(program, pairs, progress).await?;
    Ok(Hunt { played: played.into_iter().map(|(mutant, _)| mutant).zip(cells).collect() })
}

impl Hunt {
    /// Whether all were caught, and each for its flaw alone.
    pub(crate) fn is_complete(&self) -> bool {
        self.played.iter().all(|(_, cell)| is_right(cell))
    }

    /// The table, for people.
    pub(crate) fn to_text(&self, colours: bool) -> String {
        let mut table = Table::new(["mutant", "scenario", "outcome", "seen"]);
        for (mutant, cell) in &self.played {
            let outcome = match (is_right(cell), cell.scenario.id) {
                (true, NO_FAULT) => Shown::new("holds", Tone::Plain),
                (true, _) => Shown::new("caught", Tone::Good),
                (false, NO_FAULT) => Shown::new("NO LOCK", Tone::Alarm),
                (false, _) => Shown::new("GOT AWAY", Tone::Alarm),
            };
            table.row([mutant.strategy.name().into(), cell.scenario.id.into(), outcome, seen(cell).join(", ").into()]);
        }
        let mut text = table.render(colours);
        text.push('\n');
        for mutant in all() {
            text.push_str(&format!("{}: {}; {}\n", mutant.strategy.name(), mutant.strategy.summary(), mutant.flaw));
        }
        for (mutant, cell) in self.played.iter().filter(|(_, cell)| !is_right(cell)) {
            let (name, id) = (mutant.strategy.name(), cell.scenario.id);
            text.push_str(&format!("WRONG  {name}, {id}: observed {:?}\n", cell.outcome.observed));
            for seen in &cell.outcome.seen {
                text.push_str(&format!("       {seen}\n"));
            }
        }
        text
    }
}

/// It broke where its kind holds, and as the scenario says; without a fault it held.
fn is_right(cell: &Cell) -> bool {
    let Expected::Holds(_) = cell.outcome.expected else { return false };
    match cell.scenario.id {
        NO_FAULT => cell.outcome.observed == Observed::Holds,
        _ => cell.scenario.breaks_by.iter().any(|observable| seen(cell).contains(&observable.to_string())),
    }
}

/// By what it was seen to break.
fn seen(cell: &Cell) -> Vec<String> {
    let mut names: Vec<_> =
        cell.outcome.seen.iter().filter_map(|seen| Some(seen.split_once(':')?.0.to_owned())).collect();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_is_hunted_where_its_kind_holds() {
        for mutant in all() {
            assert!(!mutant.caught_by.is_empty(), "{mutant:?}");
            assert!(mutant.strategy.name().starts_with("mutant-"), "{mutant:?}");
            for id in mutant.caught_by {
                let scenario = Scenario::find(id).unwrap_or_else(|| panic!("{id} of {mutant:?}"));
                assert!(matches!(scenario.expect(mutant.strategy.kind()), Expected::Holds(_)), "{id} of {mutant:?}");
            }
        }
    }
}
