//! What a seed draws, before anything runs.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use lock_testkit::simulation::{MILLI, Nanos, Network, nanos, rate};

use super::Flaw;
use crate::RedlockOptions;

/// The world of one seed.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) ttl: Duration,
    pub(super) options: RedlockOptions,
    /// After which a call to a node ends without an answer.
    pub(super) request_limit: Duration,
    pub(super) network: Network,
    /// How much faster than the lab's time each node's clock runs, in millionths.
    pub(super) nodes: Vec<i64>,
    pub(super) clients: Vec<ClientPlan>,
    /// In no order.
    pub(super) faults: Vec<(Nanos, Fault)>,
    /// From here on nothing goes wrong, and nobody takes the lock any more.
    pub(super) calm: Nanos,
    /// By here all must be over.
    pub(super) end: Nanos,
}

#[derive(Debug)]
pub(super) struct ClientPlan {
    pub(super) ppm: i64,
    /// How long most of its messages take; a few take longer.
    pub(super) delay: Range<Nanos>,
    pub(super) blackouts: Vec<Blackout>,
}

/// A time in which nothing passes between a client and some nodes, or none of its renewals.
#[derive(Debug)]
pub(super) struct Blackout {
    pub(super) time: Range<Nanos>,
    /// One bit for each node.
    pub(super) nodes: u32,
    pub(super) of_renewals: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// The client's process is stopped; its clock runs on.
    Stop { client: usize, during: Nanos },
    /// The client's clock is set forward.
    Jump { client: usize, by: Nanos },
    /// The node is away. What arrives is lost; what it keeps, it keeps.
    Away { node: usize, during: Nanos },
    /// The node loses what it keeps, and stays away.
    Forget { node: usize, away: Nanos },
    /// The node's clock is set.
    NodeJump { node: usize, by: Nanos },
}

impl Plan {
    /// Half of the seeds have a ttl of 2 s or more: only there is a drift allowance more than a delay of the network.
    pub(super) fn draw(rng: &mut Rng, flaw: Option<Flaw>) -> Self {
        let ttl = if rng.bool() { 2_000 } else { rng.u64(200..4_000) };
        let ttl = Duration::from_millis(ttl);
        let span = nanos(ttl);
        let calm = 6 * span;
        let apart = rng.bool();
        let count = [1, 2, 3, 3, 3, 4, 5, 5][rng.usize(..8)];
        let nodes: Vec<_> = (0..count).map(|_| rate(rng, apart, 1)).collect();
        let clients = (0..rng.usize(2..=3)).map(|_| ClientPlan::draw(rng, apart, count, span, calm));
        let clients: Vec<_> = clients.collect();
        // Those who wait come back soon in half of the seeds, and then miss no moment.
        let pauses = if rng.bool() { (ttl / 200, ttl / 100) } else { (ttl / 40, ttl / 13) };
        Self {
            ttl,
            options: RedlockOptions::new().with_retry_delay(pauses.0, pauses.1),
            request_limit: ttl / rng.u32(2..=8),
            network: Network::draw(rng, span),
            faults: Fault::draw_all(rng, count, clients.len(), span, calm, flaw),
            nodes,
            clients,
            calm,
            end: calm + 6 * span,
        }
    }
}

impl ClientPlan {
    fn draw(rng: &mut Rng, apart: bool, nodes: usize, span: Nanos, calm: Nanos) -> Self {
        let blackouts = (0..rng.usize(..=3)).map(|_| {
            let start = rng.i64(0..calm);
            let time = start..start + rng.i64(span / 3..span * 2);
            let some = if rng.bool() { u32::MAX } else { rng.u32(1..1 << nodes) };
            Blackout { time, nodes: some, of_renewals: rng.bool() }
        });
        let blackouts = blackouts.collect();
        let delay = if rng.u8(..3) == 0 { span / 16 } else { 3 * MILLI };
        Self { ppm: rate(rng, apart, -1), delay: 50_000..delay, blackouts }
    }
}

impl Fault {
    fn draw_all(
        rng: &mut Rng,
        nodes: usize,
        clients: usize,
        span: Nanos,
        calm: Nanos,
        flaw: Option<Flaw>,
    ) -> Vec<(Nanos, Self)> {
        let mut faults = Vec::new();
        for client in 0..clients {
            for _ in 0..rng.usize(..=2) {
                let during = rng.i64(span / 50..span * 2);
                let stop = rng.u8(..3) > 0;
                faults.push(if stop { Self::Stop { client, during } } else { Self::Jump { client, by: during } });
            }
        }
        for node in 0..nodes {
            match rng.u8(..6) {
                0 => faults.push(Self::Away { node, during: rng.i64(span / 50..span) }),
                // Back after every entry has ended, whatever its clock and whatever the ttl (S38).
                1 => faults.push(Self::Forget { node, away: span * 5 / 2 }),
                // Set back, it keeps what it has for longer.
                2 => faults.push(Self::NodeJump { node, by: -rng.i64(0..span) }),
                _ => {}
            }
            match flaw {
                Some(Flaw::ForgetfulNodes) => faults.push(Self::Forget { node, away: 0 }),
                Some(Flaw::NodeClocksAhead) => faults.push(Self::NodeJump { node, by: rng.i64(0..span) }),
                _ => {}
            }
        }
        faults.into_iter().map(|fault| (rng.i64(0..calm), fault)).collect()
    }
}
