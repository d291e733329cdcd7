//! Redlock's rounds in a simulated world: clients and nodes with clocks of their own, and a network that loses, delays,
//! doubles and reorders. All of it is drawn from a seed, and the same seed gives the same run.
//!
//! The rounds, their limits, the pauses between two tries and the deadlines are the crate's own. In the end the world looks
//! whether two clients held at once, inside their leases, and whether anything is left of what they did.

mod client;
mod net;
mod node;
mod plan;
mod world;

use lock_testkit::simulation::Simulation;

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

/// What is played: `HASP_SEEDS` and `HASP_SEED` say how much of it.
const SIMULATION: Simulation<Flaw> = Simulation::new(|seed, flaw, traced| World::new(seed, flaw, traced).run());

#[test]
fn no_two_hold_inside_their_leases_and_nothing_is_left_behind() {
    SIMULATION.assert_sound();
}

#[test]
fn each_known_flaw_is_found_within_two_thousand_seeds() {
    let flaws = [
        Flaw::DeadlineFromReply,
        Flaw::NoDriftAllowance,
        Flaw::QuorumOfAnswered,
        Flaw::UndoOfAnyRound,
        Flaw::ForgetfulNodes,
        Flaw::NodeClocksAhead,
    ];
    SIMULATION.assert_finds(flaws, 2_000);
}

#[test]
fn a_seed_replays_exactly() {
    SIMULATION.assert_replays(50);
}
