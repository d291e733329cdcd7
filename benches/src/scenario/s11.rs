use std::time::Duration;

use futures_util::FutureExt;
use lock_core::Guarantees;
use lock_testkit::history::Observable;

use super::{Expected, LONG, Scenario, Seat, Stage};
use crate::Failure;

pub(super) const FAST_CLOCK: Scenario = Scenario {
    id: "S11",
    title: "a client's wall clock is fast",
    steps: &[
        "A acquires with a lease of a minute",
        "B, whose wall clock is two minutes fast, tries to acquire (a strategy that reads no wall clock has none to set wrong, and is tried all the same)",
        "if B is granted, two hold at once, both before their deadlines",
    ],
    breaks_by: &[Observable::InLeaseOverlap, Observable::Stolen],
    beside: &[Observable::RawOverlap],
    in_the_network: false,
    expect,
    play: |stage| play(stage).boxed(),
};

fn expect(guarantees: &Guarantees) -> Expected {
    if guarantees.trusts_client_clock {
        Expected::Breaks("each client compares the holder's expiry stamp with its own wall clock")
    } else {
        Expected::Holds("no client's wall clock is asked: the store decides when an entry ends")
    }
}

async fn play(stage: &Stage<'_>) -> Result<(), Failure> {
    let ahead = LONG.ttl() * 2;
    let a = stage.player("a").await?;
    let b = stage.player_at("b", Seat { clock_ahead: ahead, ..stage.seat() }).await?;
    let holding = a.acquire(LONG).await?;
    let other = b.try_acquire(LONG).await?;
    if holding.guard.remaining() < Duration::from_secs(1) {
        return Err("the machine was so busy that A's lease of a minute ended meanwhile".into());
    }
    let _ = holding.release().await?;
    if let Some(other) = other {
        let _ = other.release().await?;
    }
    Ok(())
}
