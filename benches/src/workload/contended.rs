//! Several clients, one key: whether a counter that the lock guards counts right.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use lock_core::Release;
use lock_memory::Memory;
use lock_testkit::history::{GuardedCounter, History, Observable};
use serde::Serialize;

use super::{Stopwatch, on_a_worker};
use crate::measure::{ratio, round};
use crate::progress::Progress;
use crate::strategy::Strategy;
use crate::{Failure, Stores};

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) contenders: usize,
    /// By each of them.
    pub(crate) increments: usize,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Contended {
    pub(crate) grants: u64,
    pub(crate) grants_per_s: f64,
    /// How many increments are missing from the counter.
    pub(crate) lost_updates: u64,
    /// What the history shows, by name, with how often.
    pub(crate) violations: Vec<(String, usize)>,
}

impl Contended {
    /// Whether nothing broke.
    pub(crate) fn is_sound(&self) -> bool {
        self.lost_updates == 0 && self.violations.is_empty()
    }
}

/// The longest that one strategy may take.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn run(
    stores: &Stores,
    strategies: &[Strategy],
    plan: Plan,
    progress: &mut Progress,
) -> Result<Vec<Contended>, Failure> {
    let mut outcomes = Vec::new();
    for strategy in strategies {
        progress.step(format_args!("contended: {}, {} clients on one key", strategy.name(), plan.contenders));
        let contend = contend(stores, strategy, plan);
        let outcome = tokio::time::timeout(LIMIT, contend).await;
        outcomes.push(outcome.map_err(|_elapsed| format!("{}: not done after {LIMIT:?}", strategy.name()))??);
    }
    Ok(outcomes)
}

async fn contend(stores: &Stores, strategy: &Strategy, plan: Plan) -> Result<Contended, Failure> {
    const KEY: &str = "compare/contended";

    let (memory, history, counter) = (Memory::new(), History::new(), Arc::new(GuardedCounter::new("counter")));
    let mut contenders = Vec::new();
    for number in 0..plan.contenders {
        let lock = strategy.connect(&strategy.seat(stores, &memory)?).await?.lock(KEY)?;
        let (actor, counter) = (history.actor(format!("contender {number}")), Arc::clone(&counter));
        contenders.push(on_a_worker(async move {
            for _ in 0..plan.increments {
                let attempt = actor.acquiring(KEY);
                let guard = lock.acquire().await?;
                let hold = attempt.granted(guard.fencing_token(), guard.deadline());
                counter.increment_as(&actor).await;
                hold.releasing();
                let answer = guard.release().await?;
                hold.released(answer);
                if answer == Release::NotHeld {
                    break;
                }
            }
            Ok(())
        }));
    }
    let watch = Stopwatch::start();
    try_join_all(contenders).await?;
    let wall = watch.elapsed();
    let events = history.events();
    let count = |observable: Observable| (observable.to_string(), observable.find(&events).len());
    Ok(Contended {
        grants: counter.increments(),
        grants_per_s: round(ratio(counter.increments() as f64, wall.as_secs_f64())),
        lost_updates: counter.lost_updates(),
        violations: Observable::ALL.into_iter().map(count).filter(|(_, count)| *count > 0).collect(),
    })
}
