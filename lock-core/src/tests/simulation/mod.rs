//! The real driver in a simulated world: several processes with clocks of their own, a network that loses, delays, doubles
//! and reorders, and a store that goes away. All of it is drawn from a seed, and the same seed gives the same run.
//!
//! Each actor is a runtime with a paused clock. The lab has a time of its own, which none of them sees, runs each of them in
//! turn, and carries their messages. In the end it looks whether two of them held at once, inside their leases, and whether
//! anything is left of what they did.

mod actor;
mod lab;
mod link;
mod plan;
mod store;

use lock_testkit::simulation::Simulation;

use lab::Lab;

/// Something that breaks the lock, which the simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// The lease counts from the reply.
    DeadlineFromReply,
    /// The deadline is the end of the ttl.
    NoDriftAllowance,
    /// A release does not look whose lock it is.
    BlindRelease,
    /// A late copy of a request brings the end of the entry nearer.
    LateRequestShortens,
    /// The store loses what it keeps, once.
    ForgetfulStore,
    /// The store's clock is set forward, once.
    StoreClockAhead,
}

/// What is played: `HASP_SEEDS` and `HASP_SEED` say how much of it.
const SIMULATION: Simulation<Flaw> = Simulation::new(|seed, flaw, traced| Lab::new(seed, flaw, traced).run());

#[test]
fn no_two_hold_inside_their_leases_and_nothing_is_left_behind() {
    SIMULATION.assert_sound();
}

#[test]
fn each_known_flaw_is_found_within_two_thousand_seeds() {
    let flaws = [
        Flaw::DeadlineFromReply,
        Flaw::NoDriftAllowance,
        Flaw::BlindRelease,
        Flaw::LateRequestShortens,
        Flaw::ForgetfulStore,
        Flaw::StoreClockAhead,
    ];
    SIMULATION.assert_finds(flaws, 2_000);
}

#[test]
fn a_seed_replays_exactly() {
    SIMULATION.assert_replays(50);
}
