use std::time::Duration;

use fastrand::Rng;

/// Nanoseconds: of a world's own time, which is the truth there, or of what some clock in it reads.
pub type Nanos = i64;

/// A millisecond.
pub const MILLI: Nanos = 1_000_000;

/// A clock that runs at a rate of its own and may be set.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// How much faster than the world's time it runs, in millionths.
    ppm: i64,
    /// When it was set, in order, and by how much.
    steps: Vec<(Nanos, Nanos)>,
}

impl Clock {
    /// A clock that starts with the world, and runs faster than the world's time by `ppm` millionths, or slower if that is
    /// negative.
    #[must_use]
    pub fn new(ppm: i64) -> Self {
        Self { ppm, steps: Vec::new() }
    }

    /// Sets it forward, or back if `by` is negative, from the world's time `at` on; never before an earlier step.
    pub fn step(&mut self, at: Nanos, by: Nanos) {
        self.steps.push((at, by));
    }

    /// What it reads at the world's time `at`.
    #[must_use]
    pub fn reading(&self, at: Nanos) -> Nanos {
        let stepped: Nanos = self.steps.iter().filter(|(since, _)| *since <= at).map(|(_, by)| by).sum();
        at + (at * self.ppm).div_euclid(1_000_000) + stepped
    }

    /// The world's time at which it first reads `reading`, or more.
    #[must_use]
    pub fn when(&self, reading: Nanos) -> Nanos {
        let mut stepped = 0;
        for &(at, by) in &self.steps {
            let before = self.without_steps(reading - stepped);
            if before < at {
                return before;
            }
            stepped += by;
            if self.reading(at) >= reading {
                return at;
            }
        }
        self.without_steps(reading - stepped)
    }

    fn without_steps(&self, reading: Nanos) -> Nanos {
        // Rounded up: the clock has got there.
        -(-reading * 1_000_000).div_euclid(1_000_000 + self.ppm)
    }
}

/// Draws a rate for [`Clock::new`], up to half a percent off, so that no two clocks differ by more than 1 %, which is what
/// the drift allowance of a lease covers. `apart`, it is all of that in one `direction`, 1 or -1: there faults show.
#[must_use]
pub fn rate(rng: &mut Rng, apart: bool, direction: i64) -> i64 {
    const MOST: i64 = 5_000;

    if apart { direction * MOST } else { rng.i64(-MOST..=MOST) }
}

/// A duration as a world counts it.
///
/// # Panics
///
/// If it is longer than 292 years.
#[must_use]
pub fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).expect("a simulation lasts for seconds")
}

/// A time as a [trace](super::Report::trace) tells it, all of one width.
#[must_use]
pub fn show(at: Nanos) -> String {
    format!("{:>12.6} ms", at as f64 / MILLI as f64)
}

#[test]
fn a_clock_reads_what_its_rate_and_its_steps_say_and_tells_when_it_did() {
    let mut fast = Clock::new(10_000);
    assert_eq!(fast.reading(1_000 * MILLI), 1_010 * MILLI);
    assert_eq!(fast.when(1_010 * MILLI), 1_000 * MILLI);
    fast.step(500 * MILLI, 100 * MILLI);
    assert_eq!((fast.reading(499 * MILLI), fast.reading(500 * MILLI)), (503_990_000, 605 * MILLI));
    assert_eq!((fast.when(503_990_000), fast.when(600 * MILLI)), (499 * MILLI, 500 * MILLI));
    assert_eq!(fast.when(1_110 * MILLI), 1_000 * MILLI);
}
