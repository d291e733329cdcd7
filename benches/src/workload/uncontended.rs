//! One task, one key: what a pair costs when nobody else wants the lock.

use std::sync::Arc;

use super::{Entrant, Measured, Run, Runs, Samples, Stopwatch, observed, on_a_worker, shuffled};
use crate::progress::Progress;
use crate::{Failure, Stores};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// With new client objects each: whether the runtime keeps caller and connection on one worker is chance, and differs.
    pub(crate) repeats: usize,
    pub(crate) warm_up: usize,
    /// Pairs per repeat, in `slices` parts.
    pub(crate) pairs: usize,
    pub(crate) slices: usize,
}

pub(crate) async fn run(
    stores: &Stores,
    entrants: &[Entrant],
    plan: Plan,
    progress: &mut Progress,
) -> Result<Runs, Failure> {
    let mut runs = vec![Vec::new(); entrants.len()];
    for repeat in 1..=plan.repeats {
        progress.step(format_args!("uncontended: one task, one key ({repeat} of {})", plan.repeats));
        let mut keys = Vec::new();
        for entrant in entrants {
            let client = entrant.open(stores).await?;
            keys.push(Arc::new(client.key("bench/uncontended")?));
        }
        let mut repeats = vec![Run::default(); entrants.len()];
        for slice in 0..=plan.slices {
            for at in shuffled(entrants.len()) {
                let count = if slice == 0 { plan.warm_up } else { plan.pairs / plan.slices };
                let key = Arc::clone(&keys[at]);
                let work = on_a_worker(async move {
                    let mut samples = Samples::with_capacity(count);
                    for _ in 0..count {
                        let watch = Stopwatch::start();
                        key.once().await?;
                        samples.record(watch.elapsed());
                    }
                    Ok(samples)
                });
                let (samples, wall, reads) = observed(stores, &entrants[at], work).await?;
                if slice > 0 {
                    let run = &mut repeats[at];
                    run.samples.append(samples);
                    run.wall += wall;
                    run.reads = reads.map(|reads| run.reads.unwrap_or(0) + reads);
                }
            }
        }
        for (run, runs) in repeats.into_iter().zip(&mut runs) {
            runs.push(Measured::of(run.samples, run.wall, run.reads));
        }
    }
    Ok(Runs(runs))
}
