use std::time::Duration;

use futures_util::FutureExt;
use lock_core::{Fence, Fencing, Guarantees};
use lock_testkit::history::{GuardedCounter, Observable};

use super::{Expected, LONG, Scenario, Stage};
use crate::Failure;

pub(super) const PAUSE: Scenario = Scenario {
    id: "S07",
    title: "the holder is paused past its deadline, and then writes",
    steps: &[
        "A acquires with a short, fixed lease, and reads the guarded counter",
        "A pauses: it neither looks at its guard nor listens to it",
        "the lease ends; B acquires, adds one to the counter, and releases",
        "A goes on and writes what it read plus one: B's update is lost",
    ],
    breaks_by: &[Observable::LostUpdate],
    beside: &[Observable::RawOverlap],
    in_the_network: false,
    expect: |_| {
        Expected::Breaks("every lease ends while its holder sleeps, and no lock can stop the holder's late write")
    },
    play: |stage| play(stage).boxed(),
};

pub(super) const PAUSE_FENCED: Scenario = Scenario {
    id: "S07+f",
    title: "as S07, and the resource checks fencing tokens",
    steps: &[
        "A acquires with a short, fixed lease, and pauses",
        "the lease ends; B acquires, writes with its fencing token, and releases",
        "A goes on and writes with its own, older token: the resource refuses it",
    ],
    breaks_by: &[Observable::StaleWriteAccepted],
    beside: &[Observable::RawOverlap],
    in_the_network: false,
    expect: expect_fenced,
    play: |stage| play_fenced(stage).boxed(),
};

fn expect_fenced(guarantees: &Guarantees) -> Expected {
    if guarantees.fencing == Fencing::None {
        return Expected::CannotApply("there is no fencing token that the resource could check");
    }
    Expected::Holds("B's token is greater than A's, so the resource refuses A's late write")
}

const SHORT: Duration = Duration::from_millis(200);

async fn play(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.player("a").await?, stage.player("b").await?);
    let counter = GuardedCounter::new("counter");

    let holding = a.acquire(stage.short(SHORT)).await?;
    let read = counter.value();
    a.actor.read("counter", read);

    let other = b.acquire(LONG).await?;
    counter.increment_as(&b.actor).await;
    let _ = other.release().await?;

    a.actor.wrote("counter", read + 1);
    holding.hold.stopped();
    Ok(())
}

async fn play_fenced(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.player("a").await?, stage.player("b").await?);
    let fence = Fence::new();
    let holding = a.acquire(stage.short(SHORT)).await?;
    let other = b.acquire(LONG).await?;
    for (player, held) in [(&b, &other), (&a, &holding)] {
        let token = held.guard.fencing_token().ok_or("a grant has no fencing token, although its strategy has them")?;
        player.actor.wrote_fenced("counter", token, fence.admit(token).is_ok());
    }
    holding.hold.stopped();
    let _ = other.release().await?;
    Ok(())
}
