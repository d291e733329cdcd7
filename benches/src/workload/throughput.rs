//! Many tasks, each with a key of its own, on one client object: how many pairs a second.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::{Client, Entrant, Run, Runs, Samples, Stopwatch, observed, on_a_worker, shuffled};
use crate::progress::Progress;
use crate::{Failure, Stores};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) tasks: usize,
    /// Warm-up and counting in all; each is cut into this many slices, which are compared slice by slice.
    pub(crate) slices: u32,
    pub(crate) warm_up: Duration,
    pub(crate) counted: Duration,
}

pub(crate) async fn run(
    stores: &Stores,
    entrants: &[Entrant],
    plan: Plan,
    progress: &mut Progress,
) -> Result<Runs, Failure> {
    let mut clients = Vec::new();
    for entrant in entrants {
        clients.push(Arc::new(entrant.open(stores).await?));
    }
    let mut runs = vec![Vec::new(); entrants.len()];
    for slice in 1..=plan.slices {
        for at in shuffled(entrants.len()) {
            let entrant = &entrants[at];
            progress.step(format_args!(
                "throughput: {} tasks, a key each, {} (slice {slice} of {})",
                plan.tasks,
                entrant.name(),
                plan.slices
            ));
            loop_for(&clients[at], plan.tasks, plan.warm_up / plan.slices).await?;
            let work = loop_for(&clients[at], plan.tasks, plan.counted / plan.slices);
            let (samples, wall, reads) = observed(stores, entrant, work).await?;
            runs[at].push(Run { samples, wall, reads });
        }
    }
    Ok(Runs(runs.into_iter().map(|runs| runs.into_iter().map(Run::measured).collect()).collect()))
}

/// `tasks` tasks that lock and unlock for `duration`.
async fn loop_for(client: &Arc<Client>, tasks: usize, duration: Duration) -> Result<Samples, Failure> {
    let watch = Stopwatch::start();
    let task = |number| {
        let client = Arc::clone(client);
        on_a_worker(async move {
            let key = client.key(&format!("bench/throughput/{number}"))?;
            let mut samples = Samples::default();
            let mut started = watch.elapsed();
            while started < duration {
                key.once().await?;
                let ended = watch.elapsed();
                samples.record(ended - started);
                started = ended;
            }
            Ok(samples)
        })
    };
    let mut all = Samples::default();
    for samples in try_join_all((0..tasks).map(task)).await? {
        all.append(samples);
    }
    Ok(all)
}
