//! Many wait for one.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use lock_testkit::fault::{Armed, Request};
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::{come, is_told, listens};
use crate::Failure;
use crate::lab::{Acquiring, Contender, Figure, PATIENCE, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

const WAITERS: usize = 20;

/// How long after the release is looked who wakes: all who poll have asked by then.
const AFTER: Duration = Duration::from_millis(200);

/// "This avoids the herd effect": `ZooKeeper` Recipes, "Locks".
pub(super) const HERD: Scenario = Scenario {
    id: "S53",
    title: "twenty wait, and one lock is released: how many wake?",
    steps: &[
        "A holds; twenty clients with connections of their own wait",
        "A releases; one of the twenty gets the lock, and keeps it",
        "counted is whom the store tells of the release, or, of those who are not told, who asks within 0.2 s of it; and what they ask until one of them has the lock",
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
    let waiting = clients.iter().map(|client| client.acquiring(stage.long(), PATIENCE));
    let mut waiting = waiting.collect::<Result<Vec<_>, _>>()?;
    all_wait(stage, &crowd).await?;

    let named = Request::any().with_part(stage.mark());
    let tells: Vec<_> =
        crowd.proxies().iter().map(|proxy| proxy.when_pushed(named.clone()).every_time().hold()).collect();
    let before = come(crowd.proxies(), &named);
    held.release().await?;
    stage.pass(AFTER).await?;
    let (told, asked) = (tells.iter().map(Armed::times_seen).sum(), come(crowd.proxies(), &named) - before);
    drop(tells);
    stage.until("one has the lock", || Ok(waiting.iter_mut().any(Acquiring::is_answered))).await?;
    stage.pass(AFTER / 4).await?;

    let is_told = is_told(stage.kind());
    let woken = if is_told { told } else { asked.min(WAITERS) as u64 };
    // Of one who is told, what it asks before is its look from time to time.
    let requests = come(crowd.proxies(), &named) - before - if is_told { asked } else { 0 };
    let at_most = Some(WAITERS as f64 / 2.0);
    stage.measured(Figure { of: "waiters, of 20, that one release wakes", value: woken as f64, at_most });
    stage.measured(Figure { of: "requests of 20 waiters for one hand-over", value: requests as f64, at_most: None });
    Ok(())
}

/// Waits until all have been told "busy", listen if they are told, and are quiet.
async fn all_wait(stage: &Stage<'_>, crowd: &Contender) -> Result<(), Failure> {
    const QUIET: Duration = Duration::from_millis(40);

    let asks = if is_told(stage.kind()) { listens(stage) } else { Request::any().with_part(stage.mark()) };
    // Etcd's waiters begin their watches anew while others come.
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
