//! The soak: random faults against contenders, for as long as it is told, and a look at the history.
//!
//! It is played in rounds. A round is a [`schedule`] that is drawn from a seed, on warm servers, with keys, contenders
//! and a history of its own; so what fails is one round, which can be played again, and shrunk.

mod fault;
mod play;
mod promise;
mod schedule;
mod servers;
mod shrink;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lock_testkit::history::{Event, Observable, write_jsonl};

use self::play::{Played, Theatre};
use self::promise::{Promise, promise};
use self::schedule::{Planned, Schedule};
use self::shrink::{Trial, shrink};
use crate::lab::Lab;
use crate::measure::Stopwatch;
use crate::{Failure, Strategy};

/// How long, and what then.
pub(crate) struct Task {
    pub(crate) strategy: Strategy,
    /// After this no round is begun; there is always one.
    pub(crate) time: Duration,
    /// The seed of the first round; each further one has the next.
    pub(crate) seed: u64,
    /// How often a schedule that failed is played again to shorten it; if it is not said, 40 times where the failure is not
    /// documented, and not at all where it is.
    pub(crate) replays: Option<usize>,
    /// Whether the steps of every round are told.
    pub(crate) verbose: bool,
    /// Where the history of what was found goes.
    pub(crate) history: Option<PathBuf>,
}

/// A strategy that cannot be soaked.
#[derive(Debug)]
pub(crate) struct Unfit(String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

/// Soaks, and tells `out`. Whether all was as documented.
///
/// # Errors
///
/// [`Unfit`] if the strategy cannot be soaked; if the servers do not start; if rounds could not be made.
pub(crate) async fn soak(program: &Path, task: &Task, out: &mut (dyn Write + Send)) -> Result<bool, Failure> {
    /// A round may fail to be made because the machine is busy; if so many do one after another, something else is wrong.
    const NOT_MADE: usize = 5;

    let Task { strategy, time, seed, .. } = *task;
    let promise = promise(&strategy);
    if let Promise::Unfit(reason) = promise {
        return Err(Unfit(format!("{} cannot be soaked: {reason}", strategy.name())).into());
    }
    writeln!(out, "soak of {} for {} s, seed {seed}", strategy.name(), time.as_secs())?;
    let lab = Arc::new(Lab::start(program).await?);
    let theatre = Theatre::open(&lab, strategy)?;
    let watch = Stopwatch::start();
    let (mut rounds, mut grants, mut not_made) = (0, 0, 0);
    let mut beside = BTreeMap::<Observable, usize>::new();
    for seed in (0..).map(|round| seed.wrapping_add(round)) {
        let schedule = Schedule::draw(seed, strategy.kind());
        match theatre.play(&schedule).await {
            Ok(played) => {
                (rounds, not_made) = (rounds + 1, 0);
                grants += played.grants();
                played.beside.iter().for_each(|(observable, count)| *beside.entry(*observable).or_default() += count);
                let found = played.observables();
                let faults = counted(schedule.faults.len());
                writeln!(out, "seed {seed}: {faults}, {} grants: {}", played.grants(), list(&found))?;
                if task.verbose && found.is_empty() {
                    tell(&played, u64::MAX, out)?;
                }
                if !found.is_empty() {
                    let documented = promise.is_kept(&found);
                    conclude(&theatre, task, seed, promise, schedule, played, out).await?;
                    return Ok(documented);
                }
            }
            Err(error) => {
                not_made += 1;
                writeln!(out, "seed {seed}: could not be played: {error}")?;
                if not_made == NOT_MADE {
                    return Err(format!("{NOT_MADE} rounds could not be played, the last because: {error}").into());
                }
            }
        }
        out.flush()?;
        if rounds > 0 && watch.elapsed() >= time {
            break;
        }
    }
    writeln!(out, "{rounds} rounds, {grants} grants, nothing found")?;
    for (observable, count) in beside {
        writeln!(out, "beside, which no lease can rule out or says nothing here: {observable}, {count} times")?;
    }
    match promise {
        Promise::Sound => writeln!(out, "as documented: {} is sound under these faults", strategy.name())?,
        Promise::BreaksBy(known, why) => {
            writeln!(out, "UNEXPECTED: {} must break by one of {}: {why}", strategy.name(), list(known))?;
        }
        _ => writeln!(out, "UNEXPECTED: {} is wrong on purpose, and got away", strategy.name())?,
    }
    Ok(promise.is_kept(&[]))
}

/// Tells what was found, shrunk if it is to be.
async fn conclude(
    theatre: &Theatre,
    task: &Task,
    seed: u64,
    promise: Promise,
    schedule: Schedule,
    played: Played,
    out: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    const REPLAYS: usize = 40;

    let documented = promise.is_kept(&played.observables());
    let replays = task.replays.unwrap_or(if documented { 0 } else { REPLAYS });
    let wanted = promise.alike(&played.observables());
    let causes = played.causes(&wanted);
    let mut shortening = Shortening { theatre, schedule, wanted, played, tried: 0, replays, out };
    shrink(causes, replays, &mut shortening).await?;
    let Shortening { wanted, played, out, .. } = shortening;
    let strategy = task.strategy.name();
    writeln!(out, "\nfound: {}, after {}", list(&played.observables()), counted(played.causes(&wanted).len()))?;
    tell(&played, played.complete_ns(&wanted), out)?;
    if let Some(file) = &task.history {
        let written = File::create(file).and_then(|file| write_jsonl(&played.events, file));
        written.map_err(|error| format!("the history cannot be written to {}: {error}", file.display()))?;
        writeln!(out, "the history lies in {}", file.display())?;
    }
    match promise {
        Promise::BreaksBy(_, why) if documented => writeln!(out, "as documented of {strategy}: {why}")?,
        Promise::Mutant if documented => writeln!(out, "as expected of {strategy}, which is wrong on purpose")?,
        _ => {
            writeln!(
                out,
                "UNEXPECTED of {strategy}; again: lock-bench soak --strategy {strategy} --seconds 1 --seed {seed}"
            )?;
        }
    }
    Ok(())
}

/// Plays parts of a schedule again.
struct Shortening<'a> {
    theatre: &'a Theatre,
    schedule: Schedule,
    /// A part fails if it shows any of these.
    wanted: Vec<Observable>,
    /// The shortest that has failed.
    played: Played,
    tried: usize,
    replays: usize,
    out: &'a mut (dyn Write + Send),
}

impl Trial<Planned> for Shortening<'_> {
    async fn fails(&mut self, faults: &[Planned]) -> Result<Option<Vec<Planned>>, Failure> {
        self.tried += 1;
        let played = self.theatre.play(&self.schedule.with(faults)).await;
        let (fails, says) = match &played {
            Ok(played) => {
                let found = played.observables();
                (found.iter().any(|found| self.wanted.contains(found)), list(&found))
            }
            Err(error) => (false, format!("could not be played: {error}")),
        };
        let Self { tried, replays, .. } = self;
        writeln!(self.out, "shrinking, replay {tried} of {replays}: {}: {says}", counted(faults.len()))?;
        let Some(played) = played.ok().filter(|_| fails) else { return Ok(None) };
        self.played = played;
        Ok(Some(self.played.causes(&self.wanted)))
    }
}

/// The steps until then with their times, and among them the events that show what was found: one violation of each observable.
fn tell(played: &Played, until_ns: u64, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let began_ns = played.steps.first().map_or(0, |step| step.t_ns);
    let seconds = |t_ns: u64| Duration::from_nanos(t_ns.saturating_sub(began_ns)).as_secs_f64();
    let mut lines: Vec<_> = played.steps.iter().map(|step| (step.t_ns, step.text.clone())).collect();
    lines.retain(|(t_ns, _)| *t_ns <= until_ns);
    for observable in played.observables() {
        let violations = || played.found.iter().filter(|found| found.observable == observable);
        let Some(first) = violations().next() else { continue };
        for Event { t_ns, actor, key, op, phase, token, deadline_ns, .. } in &first.events {
            let mut text = format!("{observable}: {actor}: {op:?} {phase:?} of {key}");
            text.extend(token.map(|token| format!(", token {token}")));
            text.extend(deadline_ns.map(|deadline| format!(", until {:.3} s", seconds(deadline))));
            lines.push((*t_ns, text));
        }
        if let Some(more) = violations().count().checked_sub(1).filter(|more| *more > 0) {
            writeln!(out, "of {observable} the first is shown, and {more} more lie in the history")?;
        }
    }
    lines.sort();
    for (t_ns, text) in lines {
        writeln!(out, "  {:7.3} s  {text}", seconds(t_ns))?;
    }
    Ok(())
}

fn list(observables: &[Observable]) -> String {
    let names: Vec<_> = observables.iter().map(ToString::to_string).collect();
    if names.is_empty() { "nothing found".into() } else { names.join(", ") }
}

fn counted(faults: usize) -> String {
    format!("{faults} fault{}", if faults == 1 { "" } else { "s" })
}
