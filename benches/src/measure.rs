//! What is measured, and with which clock.

use std::time::Duration;

use serde::Serialize;

/// A benchmark's clock. It times what is over within seconds, so, unlike a lease's, it need not count a suspend; and it
/// must not share its cost with what it measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(std::time::Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(std::time::Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// How long after `earlier` it was started.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
}

/// The durations of many runs of one thing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    pub(crate) fn record(&mut self, duration: Duration) {
        self.0.push(duration);
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    /// Sorted once, for all percentiles that are asked for.
    pub(crate) fn sorted(mut self) -> Sorted {
        self.0.sort_unstable();
        Sorted(self.0)
    }
}

/// Samples from the shortest to the longest.
#[derive(Clone, Debug)]
pub(crate) struct Sorted(Vec<Duration>);

impl Sorted {
    /// The shortest duration that at least `percent` of the samples do not exceed (the nearest-rank percentile: always a
    /// sample, never a mean of two); zero without samples.
    pub(crate) fn percentile(&self, percent: u32) -> Duration {
        let rank = (self.0.len() * percent as usize).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or(Duration::ZERO)
    }
}

/// One workload's figures for one entrant, in the units of the line that all programs share.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) ops: u64,
    pub(crate) p50_us: f64,
    pub(crate) p95_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) ops_per_s: f64,
    /// How often the server read from a socket, per operation; none where there is no server.
    pub(crate) reads_per_op: Option<f64>,
}

impl Measured {
    /// The figures of `samples`, which took `wall` in all.
    pub(crate) fn of(samples: Samples, wall: Duration, reads: Option<u64>) -> Self {
        let ops = samples.len() as u64;
        let sorted = samples.sorted();
        let us = |percent| round(sorted.percentile(percent).as_secs_f64() * 1e6);
        Self {
            ops,
            p50_us: us(50),
            p95_us: us(95),
            p99_us: us(99),
            ops_per_s: round(ratio(ops as f64, wall.as_secs_f64())),
            reads_per_op: reads.map(|reads| round(ratio(reads as f64, ops as f64))),
        }
    }
}

/// The middle one, of an even number the lower of the two; none of none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// `a / b`; zero if there is nothing to divide by.
pub(crate) fn ratio(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

/// To two digits behind the point: more would claim a precision that nobody has.
pub(crate) fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(values: impl IntoIterator<Item = u64>) -> Samples {
        let mut samples = Samples::default();
        for value in values {
            samples.record(Duration::from_micros(value));
        }
        samples
    }

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        // 1 to 100, in no order.
        let sorted = micros((1..=100).map(|n| n * 37 % 101)).sorted();
        for (percent, expected) in [(0, 1), (1, 1), (50, 50), (95, 95), (99, 99), (100, 100)] {
            assert_eq!(sorted.percentile(percent), Duration::from_micros(expected), "{percent}");
        }
        let sorted = micros([10, 20, 30]).sorted();
        for (percent, expected) in [(33, 10), (34, 20), (50, 20), (66, 20), (67, 30), (99, 30)] {
            assert_eq!(sorted.percentile(percent), Duration::from_micros(expected), "{percent}");
        }
        assert_eq!(Samples::default().sorted().percentile(50), Duration::ZERO);
    }

    #[test]
    fn the_figures_are_in_microseconds_and_per_second() {
        let measured = Measured::of(micros([100, 200, 300, 400]), Duration::from_secs(2), Some(8));
        assert_eq!((measured.ops, measured.p50_us, measured.p99_us), (4, 200.0, 400.0));
        assert_eq!((measured.ops_per_s, measured.reads_per_op), (2.0, Some(2.0)));
    }

    #[test]
    fn nothing_measured_is_zero_and_not_a_division_by_it() {
        let measured = Measured::of(Samples::default(), Duration::ZERO, None);
        assert_eq!((measured.ops, measured.p50_us, measured.ops_per_s), (0, 0.0, 0.0));
    }

    #[test]
    fn the_median_of_an_even_number_is_the_lower_of_the_middle_two() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 3.0, 2.0]), Some(2.0));
        assert_eq!(median([]), None);
    }
}
