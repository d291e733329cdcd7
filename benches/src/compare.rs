//! `lock-bench compare`: every strategy side by side, for speed and for what breaks it.

use std::fmt::Write as _;
use std::time::Duration;

use lock_core::{Exclusion, Guarantees};
use lock_memory::Memory;
use serde::Serialize;

use crate::measure::{Measured, Stopwatch, round};
use crate::report::{Cell, Table, Tone, figure};
use crate::scenario::{self, Expected, Observed, Outcome};
use crate::workload::contended::{self, Contended};
use crate::workload::{Entrant, Runs, throughput, uncontended};
use crate::{Failure, FloorKind, Progress, Seat, Stores, Strategy};

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

/// The half of a comparison that is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Only {
    /// How fast each strategy is, and whether a guarded counter counts right.
    Workloads,
    /// What breaks each strategy.
    Faults,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    not_made_because: Option<String>,
    /// What the history shows, with the events that show it.
    seen: Vec<String>,
}

/// A scenario as it is told.
#[derive(Debug, Serialize)]
struct Told {
    id: &'static str,
    title: &'static str,
    steps: &'static [&'static str],
}

/// Runs the strategies through workloads and faults on a Redis of its own.
///
/// # Errors
///
/// If there is no Redis to run, or a workload could not be run. That something broke is no error but a finding.
///
/// # Cancel safety
///
/// Cancel safe: the server ends with the future.
pub async fn compare(
    strategies: &[Strategy],
    effort: Effort,
    only: Option<Only>,
    progress: &mut Progress,
) -> Result<Comparison, Failure> {
    let watch = Stopwatch::start();
    let stores = Stores::start()?;
    let (workloads, faults) = (only != Some(Only::Faults), only != Some(Only::Workloads));

    let floors = [FloorKind::SetNx];
    let entrants = Entrant::all(strategies, &floors);
    if workloads {
        let slices = effort.throughput.slices as usize * entrants.len();
        progress.expect(effort.uncontended.repeats + slices + strategies.len());
    }
    if faults {
        progress.expect(scenario::ALL.len() * strategies.len());
    }

    let mut speeds = Vec::new();
    let mut compared: Vec<_> = strategies.iter().map(Compared::new).collect();
    if workloads {
        let alone = uncontended::run(&stores, &entrants, effort.uncontended, progress).await?;
        let many = throughput::run(&stores, &entrants, effort.throughput, progress).await?;
        speeds = (0..entrants.len()).map(|at| Speed::new(&entrants, at, &alone, &many)).collect();
        let outcomes = contended::run(&stores, strategies, effort.contended, progress).await?;
        for ((compared, strategy), outcome) in compared.iter_mut().zip(strategies).zip(outcomes) {
            let guarantees = strategy.guarantees(&Seat::at(&stores, &Memory::new())).await?;
            compared.contended_as_documented = Some(is_contention_as_documented(&guarantees, &outcome));
            compared.contended = Some(outcome);
        }
    }
    let strategy_speeds = speeds.split_off(speeds.len().min(floors.len()));
    for (compared, speed) in compared.iter_mut().zip(strategy_speeds) {
        compared.speed = Some(speed);
    }
    if faults {
        for scenario in &scenario::ALL {
            for (compared, strategy) in compared.iter_mut().zip(strategies) {
                progress.step(format_args!("{}: {}, {}", scenario.id, strategy.name(), scenario.title));
                let outcome = scenario.run(&stores, strategy).await?;
                compared.faults.push(Fault::new(scenario.id, outcome));
            }
        }
    }
    let scenarios = if faults { told() } else { Vec::new() };
    Ok(Comparison {
        version: env!("CARGO_PKG_VERSION"),
        redis: redis_version(&stores)?,
        took_s: round(watch.elapsed().as_secs_f64()),
        as_documented: compared.iter().all(Compared::is_as_documented),
        floors: speeds,
        strategies: compared,
        scenarios,
    })
}

/// No lost update and no overlap, unless the strategy excludes by best effort only: such a one may break with no fault of
/// ours, and need not.
fn is_contention_as_documented(guarantees: &Guarantees, outcome: &Contended) -> bool {
    outcome.is_sound() || guarantees.exclusion == Exclusion::BestEffort
}

fn told() -> Vec<Told> {
    scenario::ALL
        .iter()
        .map(|scenario| Told { id: scenario.id, title: scenario.title, steps: scenario.steps })
        .collect()
}

fn redis_version(stores: &Stores) -> Result<String, Failure> {
    let info: String = stores.redis().command(&["INFO", "server"])?;
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    Ok(version.ok_or("INFO has no redis_version")?.trim().to_owned())
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

    fn cells(&self) -> [Cell; 4] {
        let times = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        [
            figure(self.uncontended.p50_us).into(),
            times(self.uncontended_x_raw).into(),
            figure(self.distinct_keys.ops_per_s).into(),
            times(self.distinct_keys_x_raw).into(),
        ]
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

    fn contended_cells(&self) -> Option<[Cell; 2]> {
        let contended = self.contended.as_ref()?;
        let tone = match (contended.is_sound(), self.contended_as_documented) {
            (true, _) => Tone::Good,
            (false, Some(true)) => Tone::Bad,
            (false, _) => Tone::Alarm,
        };
        let counter = if contended.is_sound() {
            "right".to_owned()
        } else {
            let broken: usize = contended.violations.iter().map(|(_, count)| count).sum();
            format!("{} lost, {broken} violations", contended.lost_updates)
        };
        Some([figure(contended.grants_per_s).into(), Cell::new(counter, tone)])
    }
}

impl Fault {
    fn new(scenario: &'static str, outcome: Outcome) -> Self {
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
        Self { scenario, expected, because, observed, as_documented, not_made_because, seen: outcome.seen }
    }

    fn cell(&self) -> Cell {
        match (self.as_documented, self.observed) {
            (true, "breaks") => Cell::new("breaks", Tone::Bad),
            (true, "holds") => Cell::new("holds", Tone::Good),
            (true, other) => other.into(),
            (false, _) => Cell::new("UNEXPECTED", Tone::Alarm),
        }
    }

    fn complaint(&self, strategy: &str) -> String {
        let Self { scenario, expected, because, observed, .. } = self;
        let mut text =
            format!("UNEXPECTED  {scenario}, {strategy}: observed `{observed}`, documented `{expected}`: {because}\n");
        for seen in self.not_made_because.iter().chain(&self.seen) {
            writeln!(text, "            {seen}").expect("a string takes every text");
        }
        text
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

    /// The tables, for people; with `colours` for a terminal that shows them.
    #[must_use]
    pub fn to_text(&self, colours: bool) -> String {
        let mut text = String::new();
        let mut add = |part: &str| text.push_str(part);
        if let Some(table) = self.speed_table() {
            add(&table.render(colours));
            add("\npair: one task acquires and releases, median. 64 keys: 64 tasks, a key each, pairs a second.\n");
            add("x raw: beside SET NX PX + EVALSHA on a connection of the same kind, in the same seconds; only\n");
            add("ratios mean something. 1 key: 8 clients want it, grants a second, and whether the counter that\n");
            add("it guards is right.\n\n");
        }
        if let Some(table) = self.fault_table() {
            add(&table.render(colours));
            add("\nbreaks, holds: as documented.  -: cannot apply; the report says why.\n\n");
            for told in &self.scenarios {
                add(&format!("{:6} {}\n", told.id, told.title));
            }
            add("\n");
        }
        for compared in &self.strategies {
            for fault in compared.faults.iter().filter(|fault| !fault.as_documented) {
                add(&fault.complaint(compared.strategy));
            }
            if compared.contended_as_documented == Some(false) {
                add(&format!(
                    "UNEXPECTED  {}: 8 clients on one key broke it: {:?}\n",
                    compared.strategy, compared.contended
                ));
            }
        }
        let verdict = if self.as_documented { "Everything as documented" } else { "NOT as documented" };
        add(&format!("{verdict}. Redis {}, {:.0} s.\n", self.redis, self.took_s));
        text
    }

    fn speed_table(&self) -> Option<Table> {
        let mut table = Table::new(["speed", "pair us", "x raw", "64 keys /s", "x raw", "1 key /s", "counter"]);
        for floor in &self.floors {
            let cells = floor.cells().into_iter().chain(["-".into(), "-".into()]);
            table.row([floor.name.into()].into_iter().chain(cells));
        }
        for compared in &self.strategies {
            let cells = compared.speed.as_ref()?.cells().into_iter().chain(compared.contended_cells()?);
            table.row([compared.strategy.into()].into_iter().chain(cells));
        }
        Some(table)
    }

    fn fault_table(&self) -> Option<Table> {
        if self.scenarios.is_empty() {
            return None;
        }
        let mut table = Table::new(["faults"].into_iter().chain(self.scenarios.iter().map(|told| told.id)));
        for compared in &self.strategies {
            table.row([compared.strategy.into()].into_iter().chain(compared.faults.iter().map(Fault::cell)));
        }
        Some(table)
    }
}

/// The strategies and the scenarios, told at length.
pub(crate) fn list() -> String {
    let mut text = "Strategies\n\n".to_owned();
    for strategy in Strategy::all() {
        text.push_str(&format!("  {:20} {}\n", strategy.name(), strategy.summary()));
    }
    text.push_str("\nFaults\n");
    for told in told() {
        text.push_str(&format!("\n  {}: {}\n", told.id, told.title));
        for (number, step) in told.steps.iter().enumerate() {
            text.push_str(&format!("    {}. {step}\n", number + 1));
        }
    }
    text.push_str("\nWhat each fault is expected to do follows from a strategy's `Guarantees`; see docs/safety.md.\n");
    text
}
