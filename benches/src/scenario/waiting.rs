//! Family G: waiting and waking up.

mod cancel;
mod expiry;
mod herd;
mod message;

use std::pin::pin;
use std::time::Duration;

use lock_core::wait;
use lock_testkit::fault::{Proxy, Request};

use super::Scenario;
use crate::Failure;
use crate::lab::{Acquiring, Contender, Held, Stage};
use crate::strategy::Kind;

pub(super) const ALL: &[Scenario] = &[
    message::BEFORE_SUBSCRIBE,
    message::CONNECTION_DIES,
    expiry::NO_MESSAGE,
    herd::HERD,
    cancel::CANCELLED,
    message::WATCH_LOST,
    message::COMPACTED,
];

/// By when a waiter must have a lock that is free for it. One that slept on is later for certain: a sleep that begins after the
/// lock was found free lasts three quarters of [`wait::FLOOR`] at least, and on ZooKeeper as long as the session.
fn at_once(stage: &Stage<'_>) -> Duration {
    match stage.kind() {
        // Its client connects anew by a pace of its own.
        Kind::ZooKeeper => Duration::from_secs(5),
        _ => wait::FLOOR * 3 / 4 - Duration::from_millis(50),
    }
}

/// Whether a waiter is told that the lock is free, and does not ask again and again.
const fn is_told(kind: Kind) -> bool {
    matches!(kind, Kind::Token | Kind::TokenWatch | Kind::Reentrant | Kind::Etcd | Kind::ZooKeeper)
}

/// The request by which a waiter asks to be told that the lock is free.
fn listens(stage: &Stage<'_>) -> Request {
    Request::matching(|arguments| {
        let is = |name: &[u8]| arguments.first().is_some_and(|first| first.eq_ignore_ascii_case(name));
        [&b"SUBSCRIBE"[..], b"Watch", b"exists"].into_iter().any(is)
    })
    .with_part(&stage.key)
}

/// How many such requests have come through the proxies.
fn come(proxies: &[Proxy], request: &Request) -> usize {
    proxies.iter().flat_map(Proxy::recent).filter(|arguments| request.matches(arguments)).count()
}

/// Waits until a client behind these proxies has been told "busy", and listens if it is one who is told.
async fn waits(stage: &Stage<'_>, proxies: &[Proxy]) -> Result<(), Failure> {
    let asks = if is_told(stage.kind()) { listens(stage) } else { Request::any().with_part(&stage.key) };
    // What is kept in the process has no proxies, and a waiter needs no time.
    stage.until("the waiter waits", || Ok(proxies.is_empty() || come(proxies, &asks) > 0)).await
}

/// The waiter has the lock that was found free for it `bound` ago at most, or `LostWakeup` is written down.
///
/// # Errors
///
/// If it is late, and so was everybody else on this machine: then nothing can be said.
async fn woken(
    stage: &Stage<'_>,
    waiter: &Contender,
    waiting: Acquiring,
    bound: Duration,
) -> Result<Option<Held>, Failure> {
    const TICK: Duration = Duration::from_millis(5);

    let now = || stage.lab.clocks().lab_now();
    let (begun, mut waiting, mut slowest) = (now()?, pin!(waiting.outcome()), Duration::ZERO);
    let held = loop {
        let before = now()?;
        tokio::select! {
            biased;
            outcome = &mut waiting => match outcome? {
                Ok(held) => break Some(held),
                Err(answer) => return Err(format!("{} waits, and the answer is {answer:?}", waiter.name()).into()),
            },
            () = tokio::time::sleep(TICK) => slowest = slowest.max((now()? - before).saturating_sub(TICK)),
        }
        if now()? - begun > bound + Duration::from_millis(300) {
            break None;
        }
    };
    if now()? - begun > bound && slowest > bound / 4 {
        return Err(format!("nobody can say why the waiter is late: a sleep of 5 ms took {slowest:?} longer").into());
    }
    if held.is_none() {
        // It waited until now.
        waiter.kill()?;
    }
    Ok(held)
}
