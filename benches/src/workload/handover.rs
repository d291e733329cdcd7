//! From one client's release to another client's grant, which waits for it.

use std::time::Duration;

use lock_core::Release;
use lock_memory::Memory;

use super::{Floor, Measured, Samples, Stopwatch, on_a_worker};
use crate::progress::Progress;
use crate::raw::FloorKind;
use crate::strategy::Strategy;
use crate::{Failure, Stores};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) warm_up: usize,
    pub(crate) rounds: usize,
}

/// The hand-over of each strategy, in their order, and then the floor: a PING after the same pause, when everything on the
/// way has gone to sleep too.
pub(crate) async fn run(
    stores: &Stores,
    strategies: &[Strategy],
    plan: Plan,
    progress: &mut Progress,
) -> Result<(Vec<Measured>, Measured), Failure> {
    let floor = Floor::connect(FloorKind::SetNx, stores).await?;
    let mut pings = Samples::default();
    let mut measured = Vec::new();
    for strategy in strategies {
        progress.step(format_args!("hand-over: {}, {} rounds", strategy.name(), plan.rounds));
        let memory = Memory::new();
        let a = strategy.connect(&strategy.seat(stores, &memory)?).await?;
        let b = strategy.connect(&strategy.seat(stores, &memory)?).await?;
        let (a, b) = (a.lock("bench/handover")?, b.lock("bench/handover")?);
        let mut samples = Samples::default();
        for round in 0..plan.warm_up + plan.rounds {
            let held = a.acquire().await?;
            let waiter = b.clone();
            let waiting = tokio::spawn(async move {
                let guard = waiter.acquire().await?;
                Ok::<_, Failure>((guard, Stopwatch::start()))
            });
            pause().await;
            let released = on_a_worker(async move {
                let watch = Stopwatch::start();
                match held.release().await? {
                    Release::Released => Ok(watch),
                    Release::NotHeld => Err("a lock was lost while its hand-over was measured".into()),
                }
            })
            .await?;
            let (guard, granted) = waiting.await??;
            let _ = guard.release().await?;
            if round >= plan.warm_up {
                samples.record(granted.since(released));
            }
        }
        let wall = samples.total();
        measured.push(Measured::of(samples, wall, None));
        // A part of the floor beside each strategy, so that it sees the same machine.
        for _ in 0..plan.rounds.div_ceil(strategies.len()) {
            pause().await;
            let floor = floor.clone();
            pings.record(
                on_a_worker(async move {
                    let watch = Stopwatch::start();
                    floor.ping().await?;
                    Ok(watch.elapsed())
                })
                .await?,
            );
        }
    }
    let wall = pings.total();
    Ok((measured, Measured::of(pings, wall, None)))
}

/// Drawn anew each time, because a fixed one would beat with fixed retry intervals.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(20..=120))).await;
}
