use futures_util::FutureExt;
use lock_testkit::fault::Proxy;
use lock_testkit::history::Observable;

use super::super::acquire::takes_the_lock;
use super::super::release::last_step;
use super::super::{Expected, Scenario};
use super::acquainted;
use crate::Failure;
use crate::lab::{Client, Contender, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

pub(super) const IN_FLIGHT: Scenario = Scenario {
    id: "S48",
    title: "the connection is cut with a release and an acquire in flight",
    steps: &[
        "A acquires with a long lease, and releases; the store does it, and the reply to the last step is under way",
        "A tries to acquire another lock with a long lease; that request is under way on the same connection",
        "all of A's connections are cut",
        "A is told of each what is known; what it is told to hold it releases",
        "a fresh client must get both locks long before A's leases would be over",
    ],
    breaks_by: &[Observable::Stuck, Observable::DishonestOutcome],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("a call of a function has no connection")),
        (
            &[SetnxExpire, GetSet, BlindDelete],
            Expected::Holds(
                "the acquire is undone, because its effect is unknown; the release is repeated, and changes nothing",
            ),
        ),
        (
            &[Token, Reentrant, Redlock, RedlockFenced],
            Expected::Holds(
                "the effect of each is unknown: the acquire is undone, and the release repeated until it is answered",
            ),
        ),
        (
            &[TokenWatch],
            Expected::Holds("an EXEC without an answer is not taken for one; the repeat finds the lock gone"),
        ),
        (
            &[Etcd, ZooKeeper],
            Expected::Holds("each entry has a name of its own, by which it is found again and removed"),
        ),
    ],
    play: |stage| in_flight(stage).boxed(),
};

async fn in_flight(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = acquainted(stage, "a").await?;
    let held = a.acquire(stage.long()).await?;
    let releases: Vec<_> = a.proxies().iter().map(|proxy| proxy.when(last_step(stage)).hold_reply()).collect();
    let releasing = held.releasing()?;
    for release in &releases {
        release.seen().await;
    }
    let takes_other = || takes_the_lock(stage).with_part(format!("{}{OTHER}", &stage.key));
    // On the connection of the release its reply comes behind that one; on another it would come at once.
    let acquires: Vec<_> = a.proxies().iter().map(|proxy| proxy.when(takes_other()).hold_reply()).collect();
    let acquiring = other(stage, &a).trying(stage.long())?;
    let is_under_way = |proxy: &Proxy| proxy.recent().iter().any(|arguments| takes_other().matches(arguments));
    stage.until("the acquire is under way", || Ok(a.proxies().iter().all(is_under_way))).await?;
    a.proxies().iter().for_each(Proxy::cut_connections);
    drop((releases, acquires));
    releasing.answer().await?;
    if let Ok(held) = acquiring.outcome().await? {
        held.release().await?;
    }
    let prober = stage.contender("prober").await?;
    prober.probe(stage.short(), stage.bound()).await?;
    other(stage, &prober).probe(stage.short(), stage.bound()).await
}

/// What the other lock's name ends with.
const OTHER: &str = "-other";

/// The same client with the other lock.
fn other(stage: &Stage<'_>, contender: &Contender) -> Client {
    contender.on(&format!("{}{OTHER}", stage.key))
}
