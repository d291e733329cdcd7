/// Nanoseconds: of the lab's own time, which is the truth here, or of what some clock reads.
pub(super) type Nanos = i64;

pub(super) const MILLI: Nanos = 1_000_000;

/// A clock that runs at a rate of its own and may be set.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// How much faster than the lab's time it runs, in millionths.
    ppm: i64,
    /// When it was set, in order, and by how much.
    steps: Vec<(Nanos, Nanos)>,
}

impl Clock {
    pub(super) fn new(ppm: i64) -> Self {
        Self { ppm, steps: Vec::new() }
    }

    /// Sets it, from the lab's time `at` on.
    pub(super) fn step(&mut self, at: Nanos, by: Nanos) {
        self.steps.push((at, by));
    }

    /// What it reads at the lab's time `at`.
    pub(super) fn reading(&self, at: Nanos) -> Nanos {
        let stepped: Nanos = self.steps.iter().filter(|(since, _)| *since <= at).map(|(_, by)| by).sum();
        at + (at * self.ppm).div_euclid(1_000_000) + stepped
    }

    /// The lab's time at which it first reads `reading`, or more.
    pub(super) fn when(&self, reading: Nanos) -> Nanos {
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
