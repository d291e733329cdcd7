//! `lock-bench compare`: every strategy side by side, for speed and for what breaks it.

mod text;

use std::path::Path;
use std::time::Duration;

use lock_core::{Exclusion, Guarantees};
use lock_memory::Memory;
use serde::Serialize;

use crate::guarantees::{self, Shown};
use crate::lab::Figure;
use crate::matrix::{self, Cell as Played};
use crate::measure::{Measured, Stopwatch, round};
use crate::scenario::{self, Expected, Observed, Scenario};
use crate::workload::contended::{self, Contended};
use crate::workload::{Entrant, Runs, throughput, uncontended};
use crate::{Failure, FloorKind, Progress, Stores, Strategy, Unknown};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    uncontended: uncontended::Plan,
    throughput: throughput::Plan,
    contended: contended::Plan,
}

impl Effort {
    /// About a minute on two cores.
    pub const FULL: Self = Self {
        uncontended: uncontended::Plan { repeats: 5, warm_up: 100, pairs: 1_000, slices: 5 },
        throughput: throughput::Plan {
            tasks: 64,
            slices: 6,
            warm_up: Duration::from_millis(300),
            counted: Duration::from_millis(1_500),
        },
        contended: contended::Plan { contenders: 8, increments: 50 },
    };

    /// Enough to see that everything works. Its figures mean little; the faults are the same.
    pub const QUICK: Self = Self {
        uncontended: uncontended::Plan { repeats: 1, warm_up: 10, pairs: 100, slices: 2 },
        throughput: throughput::Plan {
            tasks: 64,
            slices: 1,
            warm_up: Duration::from_millis(20),
            counted: Duration::from_millis(100),
        },
        contended: contended::Plan { contenders: 8, increments: 5 },
    };
}

/// What is compared.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Agenda {
    /// How much is measured; nothing, if none.
    pub workloads: Option<Effort>,
    /// The scenarios to play, by their numbers.
    pub faults: Vec<&'static str>,
}

impl Agenda {
    /// The scenarios that show in a minute what the strategies differ in.
    pub const TELLING: &[&str] = &["S07", "S07+f", "S18", "S19"];

    /// The workloads, and the faults that tell most.
    #[must_use]
    pub fn usual(effort: Effort) -> Self {
        Self { workloads: Some(effort), faults: Self::TELLING.to_vec() }
    }

    /// The workloads only.
    #[must_use]
    pub const fn workloads(effort: Effort) -> Self {
        Self { workloads: Some(effort), faults: Vec::new() }
    }

    /// The faults of these numbers; all of them, if none is named.
    ///
    /// # Errors
    ///
    /// If there is none of a number: the text lists those that there are.
    pub fn faults(ids: &[String]) -> Result<Self, Unknown> {
        let named =
            ids.iter().map(|id| Scenario::find(id).map(|scenario| scenario.id).ok_or_else(|| Unknown::scenario(id)));
        let mut faults = named.collect::<Result<Vec<_>, _>>()?;
        if faults.is_empty() {
            faults = scenario::all().map(|scenario| scenario.id).collect();
        }
        Ok(Self { workloads: None, faults })
    }
}

/// What a comparison found.
#[derive(Debug, Serialize)]
pub struct Comparison {
    version: &'static str,
    redis: String,
    took_s: f64,
    as_documented: bool,
    /// The raw commands, which the strategies' latencies and throughputs are divided by.
    floors: Vec<Speed>,
    strategies: Vec<Compared>,
    scenarios: Vec<Told>,
}

/// One strategy in all it was put through.
#[derive(Debug, Serialize)]
struct Compared {
    strategy: &'static str,
    summary: &'static str,
    speed: Option<Speed>,
    contended: Option<Contended>,
    /// Whether what the counter shows is what the docs say; none if it was not run.
    contended_as_documented: Option<bool>,
    faults: Vec<Fault>,
}

/// The speed of a strategy or a floor, with its ratios to the raw commands over the same kind of connection.
#[derive(Debug, Serialize)]
struct Speed {
    name: &'static str,
    uncontended: Measured,
    uncontended_x_raw: Option<f64>,
    distinct_keys: Measured,
    distinct_keys_x_raw: Option<f64>,
}

/// One fault, for one strategy.
#[derive(Debug, Serialize)]
struct Fault {
    scenario: &'static str,
    expected: &'static str,
    because: &'static str,
    observed: &'static str,
    as_documented: bool,
    took_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_made_because: Option<String>,
    /// What the history shows, with the events that show it.
    seen: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    figures: Vec<Figure>,
}

/// A scenario as it is told.
#[derive(Debug, Serialize)]
struct Told {
    id: &'static str,
    title: &'static str,
    steps: &'static [&'static str],
}

/// Runs the strategies through workloads and faults on servers of its own. `program` is this crate's program, which is
/// started for each contender of a fault.
///
/// # Errors
///
/// If a server cannot be run, or a workload could not be. That something broke is no error but a finding.
///
/// # Cancel safety
///
/// Cancel safe: the servers end with the future.
pub async fn compare(
    program: &Path,
    strategies: &[Strategy],
    agenda: &Agenda,
    progress: &mut Progress,
) -> Result<Comparison, Failure> {
    let watch = Stopwatch::start();
    let scenarios: Vec<_> = agenda.faults.iter().filter_map(|id| Scenario::find(id)).collect();
    let mut compared: Vec<_> = strategies.iter().map(Compared::new).collect();
    let mut floors = Vec::new();
    if let Some(effort) = agenda.workloads {
        floors = measure(strategies, &mut compared, effort, progress).await?;
    }
    for cell in matrix::run(program, &scenarios, strategies, progress).await? {
        let of = compared.iter_mut().find(|compared| compared.strategy == cell.strategy.name());
        of.ok_or("a cell is of a strategy that was not asked for")?.faults.push(Fault::new(cell));
    }
    Ok(Comparison {
        version: env!("CARGO_PKG_VERSION"),
        redis: redis_version()?,
        took_s: round(watch.elapsed().as_secs_f64()),
        as_documented: compared.iter().all(Compared::is_as_documented),
        floors,
        strategies: compared,
        scenarios: scenarios.into_iter().map(Told::new).collect(),
    })
}

/// Runs the workloads: the floors' speeds; the others' go to their strategies.
async fn measure(
    strategies: &[Strategy],
    compared: &mut [Compared],
    effort: Effort,
    progress: &mut Progress,
) -> Result<Vec<Speed>, Failure> {
    let stores = Stores::start()?;
    let floors = [FloorKind::SetNx];
    let entrants = Entrant::all(strategies, &floors);
    let slices = effort.throughput.slices as usize * entrants.len();
    progress.expect(effort.uncontended.repeats + slices + strategies.len());

    let alone = uncontended::run(&stores, &entrants, effort.uncontended, progress).await?;
    let many = throughput::run(&stores, &entrants, effort.throughput, progress).await?;
    let mut speeds: Vec<_> = (0..entrants.len()).map(|at| Speed::new(&entrants, at, &alone, &many)).collect();
    let outcomes = contended::run(&stores, strategies, effort.contended, progress).await?;
    for ((compared, strategy), outcome) in compared.iter_mut().zip(strategies).zip(outcomes) {
        let guarantees = strategy.guarantees(&strategy.seat(&stores, &Memory::new())?).await?;
        compared.contended_as_documented = Some(is_contention_as_documented(&guarantees, &outcome));
        compared.contended = Some(outcome);
    }
    for (compared, speed) in compared.iter_mut().zip(speeds.split_off(floors.len())) {
        compared.speed = Some(speed);
    }
    Ok(speeds)
}

/// No lost update and no overlap, unless the strategy excludes by best effort only: such a one may break with no fault of
/// ours, and need not.
fn is_contention_as_documented(guarantees: &Guarantees, outcome: &Contended) -> bool {
    outcome.is_sound() || guarantees.exclusion == Exclusion::BestEffort
}

fn redis_version() -> Result<String, Failure> {
    let info: String = lock_testkit::RedisServer::start()?.command(&["INFO", "server"])?;
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    Ok(version.ok_or("INFO has no redis_version")?.trim().to_owned())
}

impl Told {
    fn new(scenario: &Scenario) -> Self {
        Self { id: scenario.id, title: scenario.title, steps: scenario.steps }
    }
}

impl Speed {
    fn new(entrants: &[Entrant], at: usize, alone: &Runs, many: &Runs) -> Self {
        let floor = match &entrants[at] {
            Entrant::Strategy(strategy) => strategy.floor(),
            Entrant::Floor(_) => None,
        };
        let floor = floor.and_then(|floor| entrants.iter().position(|entrant| entrant.name() == floor.name()));
        Self {
            name: entrants[at].name(),
            uncontended: alone.of(at),
            uncontended_x_raw: floor.map(|floor| round(alone.ratio(at, floor, |run| run.p50_us))),
            distinct_keys: many.of(at),
            distinct_keys_x_raw: floor.map(|floor| round(many.ratio(at, floor, |run| run.ops_per_s))),
        }
    }
}

impl Compared {
    fn new(strategy: &Strategy) -> Self {
        Self {
            strategy: strategy.name(),
            summary: strategy.summary(),
            speed: None,
            contended: None,
            contended_as_documented: None,
            faults: Vec::new(),
        }
    }

    fn is_as_documented(&self) -> bool {
        self.contended_as_documented.unwrap_or(true) && self.faults.iter().all(|fault| fault.as_documented)
    }
}

impl Fault {
    fn new(cell: Played) -> Self {
        let Played { scenario, outcome, took, .. } = cell;
        let as_documented = outcome.is_as_documented();
        let (expected, because) = match outcome.expected {
            Expected::Breaks(because) => ("breaks", because),
            Expected::Holds(because) => ("holds", because),
            Expected::CannotApply(because) => ("-", because),
        };
        let (observed, not_made_because) = match outcome.observed {
            Observed::Breaks => ("breaks", None),
            Observed::Holds => ("holds", None),
            Observed::BreaksOtherwise => ("breaks in another way", None),
            Observed::NotMade(because) => ("could not be made", Some(because)),
            Observed::NotPlayed => ("-", None),
        };
        Self {
            scenario: scenario.id,
            expected,
            because,
            observed,
            as_documented,
            took_s: round(took.as_secs_f64()),
            not_made_because,
            seen: outcome.seen,
            figures: outcome.figures,
        }
    }
}

impl Comparison {
    /// Whether everything that broke was said to break, and everything that held to hold.
    #[must_use]
    pub const fn is_as_documented(&self) -> bool {
        self.as_documented
    }

    /// What the program that made it exits with: 0 if everything is as documented, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.as_documented)
    }

    /// The whole report as JSON.
    ///
    /// # Errors
    ///
    /// If it cannot be written as JSON, such as a figure that is no number.
    pub fn to_json(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// A page of the docs with its tables of strategies and guarantees made from this run.
    ///
    /// # Errors
    ///
    /// If not all strategies or scenarios were run, or the page has no place for the tables.
    pub fn renew(&self, page: &str) -> Result<String, Failure> {
        if self.scenarios.len() != scenario::all().count() || self.strategies.len() != Strategy::all().len() {
            return Err("the tables of the docs are made from all scenarios and all strategies".into());
        }
        let strategies: Vec<_> = self.strategies.iter().map(|compared| compared.strategy).collect();
        let shown = self.scenarios.iter().enumerate().map(|(at, told)| Shown {
            scenario: told.id,
            cells: self.strategies.iter().map(|compared| compared.faults[at].observed).collect(),
        });
        let page = guarantees::renew(page, &strategies, &shown.collect::<Vec<_>>());
        page.ok_or_else(|| "the page has no lines between which the tables stand".into())
    }
}

/// The strategies and the scenarios, told at length.
pub(crate) fn list() -> String {
    let mut text = "Strategies\n\n".to_owned();
    for strategy in Strategy::all() {
        text.push_str(&format!("  {:20} {}\n", strategy.name(), strategy.summary()));
    }
    text.push_str("\nFaults\n");
    for told in scenario::all() {
        text.push_str(&format!("\n  {}: {}\n", told.id, told.title));
        for (number, step) in told.steps.iter().enumerate() {
            text.push_str(&format!("    {}. {step}\n", number + 1));
        }
    }
    text.push_str("\nWhat each fault is expected to do follows from a strategy's `Guarantees`; see docs/safety.md.\n");
    text
}
