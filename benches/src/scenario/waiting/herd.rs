//! Many wait for one.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::try_join_all;
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

/// After so long without another there is no other.
const STILL: Duration = Duration::from_millis(100);

/// "This avoids the herd effect": `ZooKeeper` Recipes, "Locks".
pub(super) const HERD: Scenario = Scenario {
    id: "S53",
    title: "twenty wait, and one lock is released: how many wake?",
    steps: &[
        "A holds; twenty clients with connections of their own wait",
        "A releases; one of the twenty gets the lock, and keeps it",
        "counted is whom the store tells of the release (those who are not told ask of themselves, all of them), and what they ask until one of them has the lock",
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

    let named = Request::any().with_part(&stage.key);
    let tells: Vec<_> =
        crowd.proxies().iter().map(|proxy| proxy.when_pushed(named.clone()).every_time().hold()).collect();
    let before = come(crowd.proxies(), &named);
    held.release().await?;
    let is_told = is_told(stage.kind());
    let asked = || come(crowd.proxies(), &named).saturating_sub(before);
    let told = || tells.iter().map(|tells| tells.times_seen() as usize).sum();
    if is_told {
        still(stage, "those who are told are told", 1, told).await?;
    } else {
        stage.until("all have asked", || Ok(asked() >= WAITERS)).await?;
    }
    let (woken, asked) = if is_told { (told(), asked()) } else { (asked().min(WAITERS), 0) };
    drop(tells);
    stage.until("one has the lock", || Ok(waiting.iter_mut().any(Acquiring::is_answered))).await?;
    stage.pass(Duration::from_millis(50)).await?;

    // Of one who is told, what it asks before is its look from time to time.
    let requests = come(crowd.proxies(), &named).saturating_sub(before + asked);
    let at_most = Some(WAITERS as f64 / 2.0);
    stage.measured(Figure { of: "waiters, of 20, that one release wakes", value: woken as f64, at_most });
    stage.measured(Figure { of: "requests of 20 waiters for one hand-over", value: requests as f64, at_most: None });
    Ok(())
}

/// Waits until all have been told "busy", listen if they are told, and are quiet.
async fn all_wait(stage: &Stage<'_>, crowd: &Contender) -> Result<(), Failure> {
    if is_told(stage.kind()) {
        let listens = listens(stage);
        still(stage, "twenty wait", WAITERS, || come(crowd.proxies(), &listens)).await
    } else {
        let asks = Request::any().with_part(&stage.key);
        stage.until("twenty wait", || Ok(come(crowd.proxies(), &asks) >= WAITERS)).await
    }
}

/// Waits until a count has reached `least` and stands still.
async fn still(stage: &Stage<'_>, what: &str, least: usize, mut count: impl FnMut() -> usize) -> Result<(), Failure> {
    let (mut last, mut since) = (0, stage.lab.clocks().lab_now()?);
    stage
        .until(what, || {
            let (now, counted) = (stage.lab.clocks().lab_now()?, count());
            if counted != last {
                (last, since) = (counted, now);
            }
            Ok(counted >= least && now - since > STILL)
        })
        .await
}
