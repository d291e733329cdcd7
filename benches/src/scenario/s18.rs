use std::time::Duration;

use futures_util::FutureExt;
use lock_core::{Guarantees, OwnerCheck};
use lock_testkit::history::Observable;

use super::{Expected, LONG, Scenario, Stage};
use crate::Failure;

pub(super) const LATE_RELEASE: Scenario = Scenario {
    id: "S18",
    title: "a holder releases after its lease has ended and another has the lock",
    steps: &[
        "A acquires with a short, fixed lease, and outlives it",
        "B acquires with a long one",
        "A releases",
        "C tries to acquire what B still holds",
    ],
    breaks_by: &[Observable::Stolen, Observable::InLeaseOverlap, Observable::DishonestOutcome],
    beside: &[Observable::RawOverlap],
    in_the_network: false,
    expect,
    play: |stage| play(stage).boxed(),
};

fn expect(guarantees: &Guarantees) -> Expected {
    match guarantees.release_check {
        OwnerCheck::None => Expected::Breaks("the release deletes the entry, whoever's it is"),
        _ => Expected::Holds("the release compares first, and finds that the entry is not its own"),
    }
}

async fn play(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b, c) = (stage.player("a").await?, stage.player("b").await?, stage.player("c").await?);
    let holding = a.acquire(stage.short(Duration::from_millis(200))).await?;
    holding.outlive_lease().await;
    let other = b.acquire(LONG).await?;
    let _ = holding.release().await?;
    if let Some(third) = c.try_acquire(LONG).await? {
        let _ = third.release().await?;
    }
    let _ = other.release().await?;
    Ok(())
}
