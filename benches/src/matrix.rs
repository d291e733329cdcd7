//! Every scenario against every strategy, in lanes that run side by side, each with servers of its own.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::lab::Lab;
use crate::measure::Stopwatch;
use crate::scenario::{Expected, Outcome, Scenario};
use crate::{Failure, Progress, Strategy};

/// As many as a small machine has cores: more would make short leases end before anybody has acted.
const LANES: usize = 2;

/// One scenario with one strategy.
pub(crate) struct Cell {
    pub(crate) scenario: &'static Scenario,
    pub(crate) strategy: Strategy,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

/// Plays every scenario with every strategy; the cells come back in the order of the scenarios, and within one in that of the
/// strategies.
///
/// # Errors
///
/// If a lab cannot be started, such as without a redis-server.
pub(crate) async fn run(
    program: &Path,
    scenarios: &[&'static Scenario],
    strategies: &[Strategy],
    progress: &mut Progress,
) -> Result<Vec<Cell>, Failure> {
    let pairs = scenarios.iter().flat_map(|scenario| strategies.iter().map(|strategy| (*scenario, *strategy)));
    play(program, pairs.collect(), progress).await
}

/// Plays each of these pairs; the cells come back in their order.
///
/// # Errors
///
/// As for [`run`].
pub(crate) async fn play(
    program: &Path,
    pairs: Vec<(&'static Scenario, Strategy)>,
    progress: &mut Progress,
) -> Result<Vec<Cell>, Failure> {
    let todo: VecDeque<_> = pairs.into_iter().enumerate().collect();
    progress.expect(todo.len());
    let todo = Arc::new(Mutex::new(todo));
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
    let mut lanes = JoinSet::new();
    for _ in 0..LANES {
        let (todo, done, program) = (Arc::clone(&todo), done.clone(), program.to_owned());
        lanes.spawn(async move {
            let mut lab = None;
            loop {
                let Some((at, (scenario, strategy))) = lock(&todo).pop_front() else { return Ok::<(), Failure>(()) };
                let watch = Stopwatch::start();
                let outcome = if let Expected::CannotApply(_) = scenario.expect(strategy.kind()) {
                    Outcome::not_played(scenario.expect(strategy.kind()))
                } else {
                    if lab.is_none() {
                        lab = Some(Lab::start(&program).await?);
                    }
                    let lab = lab.as_ref().ok_or("a lab was just started")?;
                    // A server that cannot be started is no finding about a lock.
                    lab.place(strategy.kind().store())?;
                    scenario.run(lab, &strategy).await
                };
                let cell = Cell { scenario, strategy, outcome, took: watch.elapsed() };
                if done.send((at, cell)).is_err() {
                    return Ok(());
                }
            }
        });
    }
    drop(done);
    let mut cells = Vec::new();
    while let Some((at, cell)) = finished.recv().await {
        let Cell { scenario, strategy, .. } = &cell;
        progress.step(format_args!("{}: {}, {}", scenario.id, strategy.name(), scenario.title));
        cells.push((at, cell));
    }
    while let Some(lane) = lanes.join_next().await {
        lane??;
    }
    cells.sort_by_key(|(at, _)| *at);
    Ok(cells.into_iter().map(|(_, cell)| cell).collect())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
