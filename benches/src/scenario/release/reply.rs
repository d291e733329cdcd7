use std::sync::Arc;

use futures_util::FutureExt;
use lock_testkit::fault::{Armed, Proxy, Request};
use lock_testkit::history::Observable;

use super::super::acquire::warm_up;
use super::super::{Expected, Scenario};
use super::{OWNER, hold_often, last_step};
use crate::Failure;
use crate::lab::{Contender, Held, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

/// Redisson's cure is a latch in Redis for each release (`redisson_unlock_latch`), ours the set of claims that count.
pub(super) const LOST_REPLY: Scenario = Scenario {
    id: "S23",
    title: "the release's reply is lost, and the client tries again",
    steps: &[
        "A acquires with a long lease (where one owner may hold a lock more than once, A holds it twice)",
        "A releases (one of the two); the store has done it, and the reply is lost with its connection",
        "A's second try is held in the network; meanwhile B acquires, unless A still holds",
        "the second try goes on its way, and A is told what became of its release",
        "C tries to acquire what B holds (or the store is asked how often A still holds)",
    ],
    breaks_by: &[Observable::Stolen, Observable::InLeaseOverlap, Observable::CountCorruption],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("a call of a function has no reply that could be lost")),
        (&[BlindDelete], Expected::Breaks("the second DEL deletes B's entry")),
        (
            &[SetnxExpire, GetSet, Token, TokenWatch, Redlock, RedlockFenced],
            Expected::Holds("the second try compares the owner; it finds another, so the first one has done it"),
        ),
        (&[Reentrant], Expected::Holds("a claim is taken out of the set of those that count, and only once")),
        (&[Etcd, ZooKeeper], Expected::Holds("the second try names A's own entry, and finds that it is gone")),
    ],
    play: |stage| lost_reply(stage).boxed(),
};

async fn lost_reply(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = stage.contender("a").await?;
    // On another lock, so that nothing of it is taken for the release.
    warm_up(stage, &a.on(&format!("warm-up-{:x}", fastrand::u64(..)))).await?;
    let holds = hold_often(stage, &a).await?;
    match &*holds {
        [held] => lost_once(stage, &a, held).await,
        [first, second] => lost_count(stage, &a, first, second).await,
        _ => Err("a lock is held once or twice".into()),
    }
}

async fn lost_once(stage: &Stage<'_>, a: &Contender, held: &Held) -> Result<(), Failure> {
    let (b, c) = (stage.contender("b").await?, stage.contender("c").await?);
    let other = release_twice(stage, a, held, async || b.acquire(stage.long()).await).await?;
    if let Some(third) = c.try_acquire(stage.long()).await? {
        third.release().await?;
    }
    other.release().await?;
    Ok(())
}

async fn lost_count(stage: &Stage<'_>, a: &Contender, first: &Held, second: &Held) -> Result<(), Failure> {
    release_twice(stage, a, first, async || Ok(())).await?;
    let counts: Vec<u64> = stage.lab.redis().server.command(&["HVALS", &stage.key])?;
    stage.history.found_count(stage.key.as_str(), OWNER.to_string(), counts.iter().sum());
    second.release().await?;
    Ok(())
}

/// Releases, loses the reply, and has the next try wait in the network until this has come to pass.
async fn release_twice<T>(
    stage: &Stage<'_>,
    a: &Contender,
    held: &Held,
    meanwhile: impl AsyncFnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let faults: Vec<_> = a.proxies().iter().map(|proxy| lose_and_hold(stage, proxy)).collect();
    let releasing = held.releasing()?;
    for (lost, again) in &faults {
        lost.seen().await;
        again.seen().await;
    }
    let meanwhile = meanwhile().await?;
    faults.iter().for_each(|(_, again)| again.release());
    releasing.answer().await?;
    Ok(meanwhile)
}

/// Loses the reply to the last step of a release, and holds what comes after.
fn lose_and_hold(stage: &Stage<'_>, proxy: &Proxy) -> (Arc<Armed>, Armed) {
    let lost = Arc::new(proxy.when(last_step(stage)).lose_reply());
    let is_lost = Arc::clone(&lost);
    let again = Request::matching(move |_| is_lost.times_seen() > 0).with_part(&stage.key);
    (lost, proxy.when(again).hold_request())
}
