//! The workloads, one file each. Entrants take turns in short slices, so that what the machine does meanwhile hits all of them:
//! only ratios between entrants of one run mean anything.

pub(crate) mod contended;
pub(crate) mod handover;
pub(crate) mod herd;
pub(crate) mod throughput;
pub(crate) mod uncontended;

use std::time::Duration;

use lock_core::{Lock, Locks};
use lock_memory::Memory;

use crate::measure::{Measured, Samples, Stopwatch, median, ratio};
use crate::raw::{Floor, FloorKey, FloorKind};
use crate::strategy::Strategy;
use crate::{Failure, Stores};

/// Who is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entrant {
    Strategy(Strategy),
    Floor(FloorKind),
}

impl Entrant {
    /// These strategies, and the floors.
    pub(crate) fn all(strategies: &[Strategy], floors: &[FloorKind]) -> Vec<Self> {
        floors.iter().copied().map(Self::Floor).chain(strategies.iter().copied().map(Self::Strategy)).collect()
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Strategy(strategy) => strategy.name(),
            Self::Floor(kind) => kind.name(),
        }
    }

    /// Its name in the line that all programs share.
    pub(crate) fn peer(&self) -> &'static str {
        match self {
            Self::Strategy(strategy) => strategy.peer(),
            Self::Floor(kind) => kind.name(),
        }
    }

    /// A new client object, with connections of its own.
    async fn open(&self, stores: &Stores) -> Result<Client, Failure> {
        Ok(match self {
            Self::Strategy(strategy) => Client::Locks(strategy.connect(&strategy.seat(stores, &Memory::new())?).await?),
            Self::Floor(kind) => Client::Floor(Floor::connect(*kind, stores).await?),
        })
    }

    fn uses_server(&self) -> bool {
        match self {
            Self::Strategy(strategy) => strategy.floor().is_some(),
            Self::Floor(kind) => !matches!(kind, FloorKind::Quorum | FloorKind::EtcdTxns | FloorKind::ZooKeeperNodes),
        }
    }
}

/// An entrant that is connected.
enum Client {
    Locks(Locks),
    Floor(Floor),
}

impl Client {
    fn key(&self, name: &str) -> Result<Pairs, Failure> {
        Ok(match self {
            Self::Locks(locks) => Pairs::Lock(locks.lock(name)?),
            Self::Floor(floor) => Pairs::Floor(floor.key(name)),
        })
    }
}

/// One key, to be locked and unlocked.
enum Pairs {
    Lock(Lock),
    Floor(FloorKey),
}

impl Pairs {
    async fn once(&self) -> Result<(), Failure> {
        match self {
            Self::Lock(lock) => match lock.acquire().await?.release().await? {
                lock_core::Release::Released => Ok(()),
                lock_core::Release::NotHeld => Err("a lock was lost while it was measured".into()),
            },
            Self::Floor(key) => key.pair().await,
        }
    }
}

/// What one entrant did in one repeat.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    samples: Samples,
    wall: Duration,
    reads: Option<u64>,
}

/// What the entrants did in all repeats: for each entrant, in their order, a run for each repeat.
#[derive(Clone, Debug)]
pub(crate) struct Runs(Vec<Vec<Measured>>);

impl Runs {
    /// The figures of the repeat with the median of `figure`.
    fn median_by(&self, entrant: usize, figure: impl Fn(&Measured) -> f64) -> Measured {
        let runs = &self.0[entrant];
        let middle = median(runs.iter().map(&figure));
        let run = runs.iter().find(|run| Some(figure(run)) == middle);
        *run.expect("a median of the lower kind is one of the values, and there is at least one repeat")
    }

    /// The figures of the repeat with the median p50.
    pub(crate) fn of(&self, entrant: usize) -> Measured {
        self.median_by(entrant, |run| run.p50_us)
    }

    /// The median over the repeats of one entrant's `figure` divided by another's in the same repeat.
    pub(crate) fn ratio(&self, entrant: usize, other: usize, figure: impl Fn(&Measured) -> f64) -> f64 {
        let pairs = self.0[entrant].iter().zip(&self.0[other]);
        median(pairs.map(|(run, other)| ratio(figure(run), figure(other)))).unwrap_or(0.0)
    }
}

impl Run {
    fn measured(self) -> Measured {
        Measured::of(self.samples, self.wall, self.reads)
    }
}

/// How often the server has read from a socket.
fn reads(stores: &Stores) -> Result<u64, Failure> {
    let info: String = stores.redis().command(&["INFO", "stats"])?;
    let line = info.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
    Ok(line.ok_or("INFO has no total_reads_processed")?.trim().parse()?)
}

/// Times `work`, and counts the server's reads meanwhile.
async fn observed<T>(
    stores: &Stores,
    entrant: &Entrant,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<(T, Duration, Option<u64>), Failure> {
    let before = reads(stores)?;
    let watch = Stopwatch::start();
    let value = work.await?;
    let wall = watch.elapsed();
    let reads = entrant.uses_server().then_some(reads(stores)?.saturating_sub(before + OWN_READS));
    Ok((value, wall, reads))
}

/// What one look at the server's counters costs it in reads.
const OWN_READS: u64 = 1;

/// The order of a slice: everyone once, drawn anew, so that nobody always comes behind the same one.
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..count).collect();
    fastrand::shuffle(&mut order);
    order
}

/// Runs `work` as a task, so that it runs on a worker, as a service's does, and not on the thread that waits for it.
async fn on_a_worker<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    tokio::spawn(work).await?
}
