//! A crowd behind one key: what a grant costs when a hundred want it, and who gets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use lock_core::Lock;
use lock_memory::Memory;
use serde::Serialize;
use tokio::sync::watch;

use super::{Entrant, Measured, Samples, Stopwatch, observed, on_a_worker};
use crate::measure::{ratio, round};
use crate::progress::Progress;
use crate::strategy::Strategy;
use crate::{Failure, Stores};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) clients: usize,
    pub(crate) waiters: usize,
    pub(crate) grants: usize,
}

/// How long a waiter keeps the lock.
const HOLD: Duration = Duration::from_millis(1);

/// What a herd did. The percentiles are the waits for a grant.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Herd {
    #[serde(flatten)]
    pub(crate) measured: Measured,
    /// Wall time per grant, the millisecond of holding included.
    pub(crate) per_grant_us: f64,
    /// How many of the waiters got it at all, and how often the luckiest did.
    pub(crate) served: usize,
    pub(crate) most: usize,
}

pub(crate) async fn run(
    stores: &Stores,
    strategies: &[Strategy],
    plan: Plan,
    progress: &mut Progress,
) -> Result<Vec<Herd>, Failure> {
    let mut herds = Vec::new();
    for strategy in strategies {
        progress.step(format_args!("herd: {}, {} waiters, {} grants", strategy.name(), plan.waiters, plan.grants));
        let memory = Memory::new();
        let mut locks = Vec::new();
        for _ in 0..plan.clients {
            locks.push(strategy.connect(&strategy.seat(stores, &memory)?).await?);
        }
        let left = Arc::new(AtomicUsize::new(plan.grants));
        let start = Stopwatch::start();
        let over = watch::Sender::new(None);
        let waiter = |number: usize| {
            let (lock, left, over) = (locks[number % plan.clients].lock("bench/herd"), Arc::clone(&left), over.clone());
            on_a_worker(async move { wait_in_line(&lock?, &left, &over, start).await })
        };
        let work = try_join_all((0..plan.waiters).map(waiter));
        let (waits, _, reads) = observed(stores, &Entrant::Strategy(*strategy), work).await?;
        let wall = over.borrow().ok_or("the herd ended before its last grant")?;
        let served = waits.iter().filter(|samples| samples.len() > 0).count();
        let most = waits.iter().map(Samples::len).max().unwrap_or(0);
        let mut all = Samples::default();
        for samples in waits {
            all.append(samples);
        }
        let measured = Measured::of(all, wall, reads);
        let per_grant_us = round(ratio(wall.as_secs_f64() * 1e6, plan.grants as f64));
        herds.push(Herd { measured, per_grant_us, served, most });
    }
    Ok(herds)
}

/// Acquires, holds, gives back, again and again; the last grant of all ends it for everybody, with the time it took.
async fn wait_in_line(
    lock: &Lock,
    left: &AtomicUsize,
    over: &watch::Sender<Option<Duration>>,
    start: Stopwatch,
) -> Result<Samples, Failure> {
    let mut samples = Samples::default();
    let mut ended = over.subscribe();
    loop {
        let asked = Stopwatch::start();
        let guard = tokio::select! {
            biased;
            _ = ended.wait_for(Option::is_some) => return Ok(samples),
            guard = lock.acquire() => guard?,
        };
        let Ok(before) = left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)) else {
            continue;
        };
        samples.record(asked.elapsed());
        tokio::time::sleep(HOLD).await;
        let _ = guard.release().await?;
        if before == 1 {
            over.send_replace(Some(start.elapsed()));
        }
    }
}
