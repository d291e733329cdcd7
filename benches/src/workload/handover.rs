//! From one client's release to another client's grant, which waits for it.

use std::time::Duration;

use lock_core::Release;
use lock_memory::Memory;

use super::{Floor, Measured, Samples, Stopwatch, on_a_worker};
use crate::progress::Progress;
use crate::raw::FloorKind;
use crate::strategy::Strategy;
use crate::{Failure, Store, Stores};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) warm_up: usize,
    pub(crate) rounds: usize,
}

/// The hand-over of each strategy, in their order, and then the floors: one request after the same pause, when everything on
/// the way has gone to sleep too. It is a PING, and for strategies on etcd a transaction.
pub(crate) async fn run(
    stores: &Stores,
    strategies: &[Strategy],
    plan: Plan,
    progress: &mut Progress,
) -> Result<(Vec<Measured>, Vec<(FloorKind, Measured)>), Failure> {
    let of_etcd = strategies.iter().any(|strategy| strategy.kind().store() == Store::Etcd);
    let mut floors = Vec::new();
    for kind in [FloorKind::SetNx, FloorKind::EtcdTxns].into_iter().filter(|kind| *kind == FloorKind::SetNx || of_etcd)
    {
        floors.push((Floor::connect(kind, stores).await?, kind, Samples::default()));
    }
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
        // A part of the floors beside each strategy, so that they see the same machine.
        for _ in 0..plan.rounds.div_ceil(strategies.len()) {
            for (floor, _, samples) in &mut floors {
                pause().await;
                let floor = floor.clone();
                let once = async move {
                    let watch = Stopwatch::start();
                    floor.once().await?;
                    Ok(watch.elapsed())
                };
                samples.record(on_a_worker(once).await?);
            }
        }
    }
    let floors = floors.into_iter().map(|(_, kind, samples)| {
        let wall = samples.total();
        (kind, Measured::of(samples, wall, None))
    });
    Ok((measured, floors.collect()))
}

/// Drawn anew each time, because a fixed one would beat with fixed retry intervals.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(20..=120))).await;
}
