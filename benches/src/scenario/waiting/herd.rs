//! Many wait for one.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use lock_core::wait;
use lock_testkit::fault::Request;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::{come, is_told, listens};
use crate::Failure;
use crate::lab::{Acquiring, Contender, Figure, PATIENCE, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

const WAITERS: usize = 20;

/// How long after the hand-over a request counts as caused by it: all who poll have asked by then, and nobody whose sleep was
/// begun just before the release.
const AFTER: Duration = Duration::from_millis(200);

/// "This avoids the herd effect": `ZooKeeper` Recipes, "Locks".
pub(super) const HERD: Scenario = Scenario {
    id: "S53",
    title: "twenty wait, and one lock is released: how many wake?",
    steps: &[
        "A holds; twenty clients with connections of their own wait",
        "A releases; one of the twenty has the lock, and keeps it",
        "the requests of the twenty that name the lock are counted, from the release until 0.2 s after the grant: a queue makes a few of them, a crowd one each at least",
    ],
    breaks_by: &[Observable::LostWakeup],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("its waiters send nothing; the table wakes the first of its queue")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Redlock, RedlockFenced],
            Expected::Breaks("every waiter asks ten times a second, whatever happens"),
        ),
        (
            &[Token, TokenWatch, Reentrant],
            Expected::Breaks("a message to a channel wakes all: each tries, and one wins"),
        ),
        (&[Etcd, ZooKeeper], Expected::Holds("each watches the one before it, so a release wakes one")),
    ],
    play: |stage| herd(stage).boxed(),
};

async fn herd(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, crowd) = (stage.contender("a").await?, stage.contender("crowd").await?);
    let held = a.acquire(stage.long()).await?;
    let names: Vec<_> = (1..=WAITERS).map(|number| format!("waiter {number}")).collect();
    let clients = try_join_all(names.iter().map(|name| crowd.client(name))).await?;
    let now = || stage.lab.clocks().lab_now();
    let named = Request::any().with_part(stage.mark());

    let begun = now()?;
    let waiting = clients.iter().map(|client| client.acquiring(stage.long(), PATIENCE));
    let mut waiting = waiting.collect::<Result<Vec<_>, _>>()?;
    all_wait(stage, &crowd).await?;
    let before = come(crowd.proxies(), &named);
    held.release().await?;
    stage.until("one has the lock", || Ok(waiting.iter_mut().any(Acquiring::is_answered))).await?;
    stage.pass(AFTER).await?;
    let asked = come(crowd.proxies(), &named) - before;

    // A waiter who is told looks from time to time all the same.
    if is_told(stage.kind()) && now()? - begun > wait::FLOOR * 3 / 4 {
        return Err("the waiters have slept so long that some have looked by themselves".into());
    }
    stage.measured(Figure {
        of: "requests of 20 waiters for one hand-over",
        value: asked as f64,
        at_most: WAITERS as f64 / 2.0,
    });
    Ok(())
}

/// Waits until all have been told "busy", listen if they are told, and are quiet.
async fn all_wait(stage: &Stage<'_>, crowd: &Contender) -> Result<(), Failure> {
    const QUIET: Duration = Duration::from_millis(40);

    let asks = if is_told(stage.kind()) { listens(stage) } else { Request::any().with_part(stage.mark()) };
    let (mut last, mut since) = (0, stage.lab.clocks().lab_now()?);
    stage
        .until("twenty wait", || {
            let (asked, now) = (come(crowd.proxies(), &asks), stage.lab.clocks().lab_now()?);
            if asked != last {
                (last, since) = (asked, now);
            }
            Ok(asked >= WAITERS && (!is_told(stage.kind()) || now - since > QUIET))
        })
        .await
}
