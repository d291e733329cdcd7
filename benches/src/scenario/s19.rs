use std::time::Duration;

use futures_util::FutureExt;
use lock_core::{Guarantees, NodeFailure, OwnerCheck};
use lock_testkit::fault::{Proxy, Request};
use lock_testkit::history::Observable;

use super::{Expected, LONG, Scenario, Stage};
use crate::Failure;

pub(super) const GET_THEN_DEL: Scenario = Scenario {
    id: "S19",
    title: "the lock changes hands between the comparison of a release and its DEL",
    steps: &[
        "A acquires with a short, fixed lease, and releases at once",
        "the last step of A's release is held in the network: the DEL, the MULTI with its DEL, or the one script",
        "the lease ends; B acquires with a long one",
        "A's last step goes on its way",
        "C tries to acquire what B still holds",
    ],
    breaks_by: &[Observable::Stolen, Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap, Observable::DishonestOutcome],
    in_the_network: true,
    expect,
    play: |stage| play(stage).boxed(),
};

fn expect(guarantees: &Guarantees) -> Expected {
    if guarantees.node_failure == NodeFailure::EndsHolders {
        return Expected::CannotApply("a call of a function has no step that could be late");
    }
    match guarantees.release_check {
        OwnerCheck::None => Expected::Breaks("the release deletes the entry, whoever's it is by then"),
        OwnerCheck::Racy => Expected::Breaks("the DEL comes after the comparison, and asks nobody"),
        _ => Expected::Holds("the store compares and deletes in one step"),
    }
}

async fn play(stage: &Stage<'_>) -> Result<(), Failure> {
    let proxy = Proxy::start(stage.stores.redis().addr())?;
    let a = stage.player_at("a", stage.seat_behind(&proxy)).await?;
    let (b, c) = (stage.player("b").await?, stage.player("c").await?);

    // Well below the 500 ms after which the redis crate gives up a request of a pool's connection.
    let holding = a.acquire(stage.short(Duration::from_millis(300))).await?;
    let held = proxy.when(last_step()).hold_request();
    let mut releasing = tokio::spawn(holding.release());
    tokio::select! {
        () = held.seen() => {}
        answer = &mut releasing => {
            return Err(format!("the release ended ({:?}) without a step to be held", answer?).into());
        }
    }
    let other = b.acquire(LONG).await?;
    held.release();
    let _ = releasing.await??;
    if let Some(third) = c.try_acquire(LONG).await? {
        let _ = third.release().await?;
    }
    let _ = other.release().await?;
    Ok(())
}

/// What ends a release.
fn last_step() -> Request {
    Request::matching(|arguments| {
        let is = |name: &[u8]| arguments.first().is_some_and(|first| first.eq_ignore_ascii_case(name));
        [&b"DEL"[..], b"UNLINK", b"MULTI", b"EVALSHA", b"EVAL"].into_iter().any(is)
    })
}
