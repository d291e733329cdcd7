//! Redlock's rounds in a simulated world: clients and nodes with clocks of their own, and a network that loses, delays,
//! doubles and reorders. All of it is drawn from a seed, and the same seed gives the same run.
//!
//! The rounds, their limits, the pauses between two tries and the deadlines are the crate's own. In the end the world looks
//! whether two clients held at once, inside their leases, and whether anything is left of what they did.

mod client;
mod clock;
mod net;
mod node;
mod plan;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use world::World;

/// Something that breaks the lock, which the simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// The lease counts from the reply.
    DeadlineFromReply,
    /// The deadline is the end of the ttl.
    NoDriftAllowance,
    /// A majority of those nodes that answered is taken for a majority.
    QuorumOfAnswered,
    /// What undoes a lost round also undoes a later round of the same claim.
    UndoOfAnyRound,
    /// Each node restarts empty once, and is back at once (S36).
    ForgetfulNodes,
    /// Each node's clock is set forward once (S15).
    NodeClocksAhead,
}

/// What came of one seed.
#[derive(Debug, Default)]
struct Report {
    /// What must not be.
    faults: Vec<String>,
    holds: usize,
    /// If asked for.
    trace: Vec<String>,
}

fn play(seed: u64, flaw: Option<Flaw>) -> Report {
    std::panic::catch_unwind(|| World::new(seed, flaw, false).run())
        .unwrap_or_else(|_printed| Report { faults: vec!["something panicked".to_owned()], ..Report::default() })
}

fn replay(seed: u64, flaw: Option<Flaw>) -> Report {
    World::new(seed, flaw, true).run()
}

/// How many seeds are played: `HASP_SEEDS`, or 10,000.
fn seeds() -> u64 {
    std::env::var("HASP_SEEDS").map_or(10_000, |seeds| seeds.parse().expect("HASP_SEEDS is a number"))
}

/// Plays seeds on all processors until one is found faulty; returns the lowest such, and how many holds there were.
fn first_faulty(seeds: u64, flaw: Option<Flaw>) -> (Option<u64>, usize) {
    let (next, holds, faulty) = (AtomicU64::new(0), AtomicUsize::new(0), Mutex::new(None::<u64>));
    let work = || {
        loop {
            // One that is taken is played, so that no lower one is left out.
            if faulty.lock().unwrap().is_some() {
                return;
            }
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            let report = play(seed, flaw);
            holds.fetch_add(report.holds, Ordering::Relaxed);
            if !report.faults.is_empty() {
                let mut faulty = faulty.lock().unwrap();
                *faulty = Some(faulty.map_or(seed, |other| other.min(seed)));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(work);
        }
    });
    (faulty.into_inner().unwrap(), holds.into_inner())
}

/// A seed's story, for a person.
fn tell(seed: u64, flaw: Option<Flaw>) -> String {
    let Report { faults, trace, .. } = replay(seed, flaw);
    format!("{}\nseed {seed}: {faults:#?}", trace.join("\n"))
}

#[test]
fn no_two_hold_inside_their_leases_and_nothing_is_left_behind() {
    if let Ok(seed) = std::env::var("HASP_SEED") {
        println!("{}", tell(seed.parse().expect("HASP_SEED is a number"), None));
        return;
    }
    let (faulty, holds) = first_faulty(seeds(), None);
    if let Some(seed) = faulty {
        panic!("{}\nreplay it with HASP_SEED={seed}", tell(seed, None));
    }
    println!("{} seeds, {holds} holds", seeds());
    assert!(holds as u64 >= seeds() * 3, "{holds} holds are too few to show anything");
}

#[test]
fn each_known_flaw_is_found_within_two_thousand_seeds() {
    for flaw in [
        Flaw::DeadlineFromReply,
        Flaw::NoDriftAllowance,
        Flaw::QuorumOfAnswered,
        Flaw::UndoOfAnyRound,
        Flaw::ForgetfulNodes,
        Flaw::NodeClocksAhead,
    ] {
        let (faulty, _) = first_faulty(2_000, Some(flaw));
        let seed = faulty.unwrap_or_else(|| panic!("{flaw:?} is not found"));
        let faults = replay(seed, Some(flaw)).faults;
        assert!(faults.iter().any(|fault| fault.contains("both for")), "{flaw:?}: {faults:?}");
        println!("{flaw:?}: {seed}: {}", faults[0]);
    }
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..20 {
        let (first, second) = (replay(seed, None), std::thread::spawn(move || replay(seed, None)).join().unwrap());
        assert!(first.trace.len() > 50, "{:?}", first.trace);
        assert_eq!(first.trace, second.trace);
        assert_eq!(first.holds, play(seed, None).holds);
    }
}
