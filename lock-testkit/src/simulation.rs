//! For whoever writes a lock, or one part of it, and wants to play it over thousands of seeds: each draws a world in which
//! clocks differ and messages are late, lost or doubled, and the same seed gives the same run.
//!
//! A world is a function of a seed, written beside the lock. It has a time of its own, runs without waiting, and answers with
//! a [`Report`] of who held when. What it is made of, and what plays it, is here:
//!
//! | piece | what it is for |
//! | --- | --- |
//! | [`Clock`], [`rate`] | a clock that differs from the world's time and from others, but by no more than leases allow for |
//! | [`Network`] | how often a message is late, lost, doubled or refused |
//! | [`Hold`], [`Report::judge`] | whether two held at once inside their leases |
//! | [`Simulation`] | plays seeds; its three assertions are the tests of a world |
//!
//! A world that finds nothing may be too tame. So it can be played with a flaw, something that breaks the lock and that it
//! must find; the flaws are an enum of its own.
//!
//! What is random is drawn from the generator of `fastrand` 2, which is also what a world has to use with [`rate`] and
//! [`Network::draw`].
//!
//! # Examples
//!
//! Five take a lock in turn, each as soon as the store's clock has ended the lease before. Their own clocks may be slower
//! than the store's, so their deadlines must come nearer by an allowance for drift:
//!
//! ```
//! use fastrand::Rng;
//! use lock_testkit::simulation::{Clock, Hold, MILLI, Report, Simulation, rate, show};
//!
//! #[derive(Clone, Copy, Debug)]
//! enum Flaw {
//!     NoDriftAllowance,
//! }
//!
//! fn five_in_turn(seed: u64, flaw: Option<Flaw>, traced: bool) -> Report {
//!     let mut rng = Rng::with_seed(seed);
//!     let apart = rng.bool();
//!     let store = Clock::new(rate(&mut rng, apart, 1));
//!     let ttl = 1_000 * MILLI;
//!     let drift = match flaw {
//!         None => ttl / 100 + 2 * MILLI,
//!         Some(Flaw::NoDriftAllowance) => 0,
//!     };
//!
//!     let (mut report, mut holds, mut free_at) = (Report::default(), Vec::new(), 0);
//!     for holder in 0..5 {
//!         let own = Clock::new(rate(&mut rng, apart, -1));
//!         let sent_at = free_at;
//!         let arrives = sent_at + rng.i64(0..3 * MILLI);
//!         free_at = store.when(store.reading(arrives) + ttl);
//!         let from = arrives + rng.i64(0..3 * MILLI);
//!         let until = own.when(own.reading(sent_at) + ttl - drift);
//!         holds.push(Hold { from, until, holder });
//!         if traced {
//!             report.trace.push(format!("{} holder {holder} is told that it holds", show(from)));
//!             report.trace.push(format!("{} its deadline", show(until)));
//!         }
//!     }
//!     report.judge("holder", holds);
//!     report
//! }
//!
//! // Each of them is a test of its own.
//! let simulation = Simulation::new(five_in_turn);
//! simulation.assert_sound();
//! simulation.assert_finds([Flaw::NoDriftAllowance], 2_000);
//! simulation.assert_replays(9);
//! ```

mod clock;
mod network;
mod report;

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

pub use clock::{Clock, MILLI, Nanos, nanos, rate, show};
pub use network::Network;
pub use report::{Hold, Report};

/// A world to be played over seeds, sound or with a flaw `F`.
#[derive(Clone, Copy, Debug)]
pub struct Simulation<F> {
    world: fn(seed: u64, flaw: Option<F>, traced: bool) -> Report,
}

impl<F: Copy + Debug + Send + Sync> Simulation<F> {
    /// A simulation of a `world`: what comes of a seed, with or without a flaw, and with a [trace](Report::trace) if that is
    /// asked for. All that is random in it must follow from the seed, on whatever thread it runs.
    pub const fn new(world: fn(seed: u64, flaw: Option<F>, traced: bool) -> Report) -> Self {
        Self { world }
    }

    /// Plays one seed. A panic is a fault like others, and its trace is lost.
    #[must_use]
    pub fn play(&self, seed: u64, flaw: Option<F>, traced: bool) -> Report {
        catch_unwind(AssertUnwindSafe(|| (self.world)(seed, flaw, traced)))
            .unwrap_or_else(|_printed| Report { faults: vec!["something panicked".to_owned()], ..Report::default() })
    }

    /// Plays the world without a flaw over many seeds, on all processors: as many as `HASP_SEEDS` says, or 10,000.
    ///
    /// If `HASP_SEED` names one seed, it only prints that one's story.
    ///
    /// # Panics
    ///
    /// If a seed has a fault, with the story of the lowest such; if there are fewer than three holds for each seed, which
    /// would show nothing; or if one of the two variables is not a number.
    #[track_caller]
    pub fn assert_sound(&self) {
        match number("HASP_SEED") {
            Some(seed) => println!("{}", self.tell(seed)),
            None => self.assert_sound_over(number("HASP_SEEDS").unwrap_or(10_000)),
        }
    }

    #[track_caller]
    fn assert_sound_over(&self, seeds: u64) {
        let (faulty, holds) = self.first_faulty(seeds, None);
        if let Some(seed) = faulty {
            panic!("{}\nreplay it with HASP_SEED={seed}", self.tell(seed));
        }
        println!("{seeds} seeds, {holds} holds");
        assert!(holds as u64 >= seeds * 3, "{holds} holds are too few to show anything");
    }

    /// Plays the world with each of the `flaws` over `seeds` seeds, or fewer if one shows it.
    ///
    /// # Panics
    ///
    /// If no seed shows a flaw, or the first that does has a fault but no [overlap](Report::overlaps).
    #[track_caller]
    pub fn assert_finds(&self, flaws: impl IntoIterator<Item = F>, seeds: u64) {
        for flaw in flaws {
            let (faulty, _) = self.first_faulty(seeds, Some(flaw));
            let seed = faulty.unwrap_or_else(|| panic!("{flaw:?} is not found"));
            let Report { faults, overlaps, .. } = self.play(seed, Some(flaw), false);
            assert!(overlaps > 0, "{flaw:?}: {faults:?}");
            println!("{flaw:?}: {seed}: {}", faults[0]);
        }
    }

    /// Plays some seeds three times: on this thread, on another, and without a trace.
    ///
    /// # Panics
    ///
    /// If they are not the same, or if a trace has no more than `lines` lines, which would show too little.
    #[track_caller]
    pub fn assert_replays(&self, lines: usize) {
        for seed in 0..20 {
            let first = self.play(seed, None, true);
            let second = std::thread::scope(|scope| scope.spawn(|| self.play(seed, None, true)).join());
            let second = second.expect("a panic is a fault");
            assert!(first.trace.len() > lines, "seed {seed}: {first:?}");
            assert_eq!(first.trace, second.trace);
            assert_eq!(first.holds, self.play(seed, None, false).holds);
        }
    }

    /// Plays seeds on all processors until one is found faulty; returns the lowest such, and how many holds there were.
    fn first_faulty(&self, seeds: u64, flaw: Option<F>) -> (Option<u64>, usize) {
        let (next, holds, lowest) = (AtomicU64::new(0), AtomicUsize::new(0), Mutex::new(None::<u64>));
        let faulty = || lowest.lock().unwrap_or_else(PoisonError::into_inner);
        let work = || {
            // One that is taken is played, so that no lower one is left out.
            while faulty().is_none() {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return;
                }
                let report = self.play(seed, flaw, false);
                holds.fetch_add(report.holds, Ordering::Relaxed);
                if !report.faults.is_empty() {
                    let mut faulty = faulty();
                    *faulty = Some(faulty.map_or(seed, |other| other.min(seed)));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
                scope.spawn(work);
            }
        });
        (*faulty(), holds.load(Ordering::Relaxed))
    }

    /// A seed's story, for a person.
    fn tell(&self, seed: u64) -> String {
        let Report { faults, trace, .. } = self.play(seed, None, true);
        format!("{}\nseed {seed}: {faults:#?}", trace.join("\n"))
    }
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is a number, not `{value}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Flaw {
        ActsTooLong,
        Harmless,
    }

    /// One after the other holds, three in all; the seed `FAULTY` and those above it have a fault.
    fn in_turn<const FAULTY: u64>(seed: u64, flaw: Option<Flaw>, traced: bool) -> Report {
        let late = Nanos::from(flaw == Some(Flaw::ActsTooLong) || flaw.is_none() && seed >= FAULTY);
        let mut report = Report::default();
        let holds = (0..3).map(|turn| Hold { from: turn * 10, until: turn * 10 + 10 + late, holder: 0 });
        report.judge("actor", holds.collect());
        if traced {
            report.trace.extend((0..4).map(|line| format!("line {line} of {seed}")));
        }
        report
    }

    #[test]
    fn a_sound_world_is_sound_and_replays_and_its_flaw_is_found() {
        let simulation = Simulation::new(in_turn::<1_000>);
        simulation.assert_sound_over(1_000);
        simulation.assert_replays(3);
        simulation.assert_finds([Flaw::ActsTooLong], 1);
    }

    #[test]
    #[should_panic(expected = "replay it with HASP_SEED=700")]
    fn the_lowest_faulty_seed_is_named() {
        Simulation::new(in_turn::<700>).assert_sound_over(1_000);
    }

    #[test]
    #[should_panic(expected = "Harmless is not found")]
    fn a_flaw_that_no_seed_shows_is_a_failure() {
        Simulation::new(in_turn::<1_000>).assert_finds([Flaw::ActsTooLong, Flaw::Harmless], 100);
    }

    #[test]
    #[should_panic(expected = "left behind")]
    fn a_flaw_that_shows_only_otherwise_is_a_failure() {
        let world = |_, _, _| Report { faults: vec!["something is left behind".to_owned()], ..Report::default() };
        Simulation::new(world).assert_finds([Flaw::ActsTooLong], 100);
    }

    #[test]
    #[should_panic(expected = "something panicked")]
    fn a_panic_is_a_fault() {
        Simulation::<Flaw>::new(|_, _, _| panic!("as it should")).assert_sound_over(1);
    }

    #[test]
    #[should_panic(expected = "too few")]
    fn a_world_without_holds_shows_nothing() {
        Simulation::<Flaw>::new(|_, _, _| Report::default()).assert_sound_over(100);
    }

    #[test]
    #[should_panic(expected = "seed 0")]
    fn a_trace_that_tells_too_little_is_a_failure() {
        Simulation::new(in_turn::<1_000>).assert_replays(4);
    }

    #[test]
    #[should_panic(expected = "left == right")]
    fn a_world_that_is_not_the_same_again_is_a_failure() {
        Simulation::<Flaw>::new(|_, _, _| {
            let thread = format!("{:?}", std::thread::current().id());
            Report { trace: vec![thread], ..Report::default() }
        })
        .assert_replays(0);
    }
}
