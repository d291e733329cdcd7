//! What a seed draws, before anything runs.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use lock_testkit::simulation::{MILLI, Nanos, Network, nanos, rate};

use super::Flaw;

/// The world of one seed.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) ttl: Duration,
    /// How long an actor waits for an answer.
    pub(super) limit: Duration,
    pub(super) network: Network,
    pub(super) store_ppm: i64,
    pub(super) actors: Vec<ActorPlan>,
    /// In no order.
    pub(super) faults: Vec<(Nanos, Fault)>,
    /// From here on nothing goes wrong, and nobody takes the lock any more.
    pub(super) calm: Nanos,
    /// By here everything must have been given back.
    pub(super) end: Nanos,
}

#[derive(Debug)]
pub(super) struct ActorPlan {
    pub(super) ppm: i64,
    /// How long most of its messages take; a few take longer.
    pub(super) delay: Range<Nanos>,
    /// How many tasks want the lock.
    pub(super) users: u64,
    pub(super) blackouts: Vec<Blackout>,
}

/// A time in which nothing of an actor arrives, or none of its renewals.
#[derive(Debug)]
pub(super) struct Blackout {
    pub(super) time: Range<Nanos>,
    pub(super) of_renewals: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// The process is stopped; its clocks run on.
    Stop { actor: usize, during: Nanos },
    /// The machine is suspended: timers stand still, and the clock that counts suspend runs on.
    Suspend { actor: usize, during: Nanos },
    /// The clock of an actor that counts suspend is set forward.
    Jump { actor: usize, by: Nanos },
    /// The store is away. What arrives is lost; what it keeps, it keeps.
    Away { during: Nanos },
    /// The store loses what it keeps.
    Forget,
    /// The store's clock is set.
    StoreJump { by: Nanos },
}

impl Plan {
    /// Half of the seeds have a ttl of 2 s or more: only there is a drift allowance more than a delay of the network.
    pub(super) fn draw(rng: &mut Rng, flaw: Option<Flaw>) -> Self {
        let ttl = if rng.bool() { 2_000 } else { rng.u64(200..4_000) };
        let ttl = Duration::from_millis(ttl);
        let span = nanos(ttl);
        let calm = 5 * span;
        let apart = rng.bool();
        let actors = (0..rng.usize(2..=3)).map(|_| ActorPlan::draw(rng, apart, span, calm));
        let actors: Vec<_> = actors.collect();
        Self {
            ttl,
            limit: ttl / rng.u32(2..=8),
            network: Network::draw(rng, span),
            store_ppm: rate(rng, apart, 1),
            faults: Fault::draw_all(rng, &actors, span, calm, flaw),
            actors,
            calm,
            end: calm + 10 * span,
        }
    }
}

impl ActorPlan {
    fn draw(rng: &mut Rng, apart: bool, span: Nanos, calm: Nanos) -> Self {
        let blackouts = (0..rng.usize(..=2)).map(|_| {
            let start = rng.i64(0..calm);
            Blackout { time: start..start + rng.i64(span / 3..span * 2), of_renewals: rng.bool() }
        });
        let blackouts = blackouts.collect();
        let delay = if rng.u8(..3) == 0 { span / 10 } else { 3 * MILLI };
        Self { ppm: rate(rng, apart, -1), delay: 50_000..delay, users: rng.u64(1..=2), blackouts }
    }
}

impl Fault {
    fn draw_all(
        rng: &mut Rng,
        actors: &[ActorPlan],
        span: Nanos,
        calm: Nanos,
        flaw: Option<Flaw>,
    ) -> Vec<(Nanos, Self)> {
        let mut faults = Vec::new();
        for actor in 0..actors.len() {
            for _ in 0..rng.usize(..=2) {
                let during = rng.i64(span / 50..span * 2);
                faults.push(match rng.u8(..4) {
                    0 | 1 => Self::Stop { actor, during },
                    2 => Self::Suspend { actor, during },
                    _ => Self::Jump { actor, by: during },
                });
            }
        }
        for _ in 0..rng.usize(..=2) {
            faults.push(if rng.bool() {
                Self::Away { during: rng.i64(span / 50..span) }
            } else {
                // Set back, it keeps what it has for longer.
                Self::StoreJump { by: -rng.i64(0..span) }
            });
        }
        match flaw {
            Some(Flaw::ForgetfulStore) => faults.push(Self::Forget),
            Some(Flaw::StoreClockAhead) => faults.push(Self::StoreJump { by: rng.i64(0..span) }),
            _ => {}
        }
        faults.into_iter().map(|fault| (rng.i64(0..calm), fault)).collect()
    }
}
