use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::{Guarantees, NodeFailure};
use lock_testkit::fault::{Proxy, Request};
use lock_testkit::history::Observable;
use tokio::runtime::{Builder, Runtime};

use super::{Expected, Scenario, Stage};
use crate::Failure;
use crate::strategy::Strategy;

pub(super) const CRASH_BETWEEN: Scenario = Scenario {
    id: "S01",
    title: "the holder dies after the first command of its acquire",
    steps: &[
        "A begins to acquire with a short, fixed lease; its first command is applied and answered",
        "a second command, if the strategy has one, is held in the network",
        "A's runtime and connections end at once, as in a crash; nothing of A is sent any more",
        "B, a fresh client, tries until the lease is over and three seconds more",
    ],
    breaks_by: &[Observable::Stuck],
    beside: &[],
    in_the_network: true,
    expect,
    play: |stage| play(stage).boxed(),
};

fn expect(guarantees: &Guarantees) -> Expected {
    if guarantees.node_failure == NodeFailure::EndsHolders {
        return Expected::CannotApply("a crash ends the table together with its holders");
    }
    if guarantees.frees_after_crash {
        Expected::Holds("the entry has an end from its first moment on")
    } else {
        Expected::Breaks("between two commands the entry has no end, and nobody is left to give it one")
    }
}

async fn play(stage: &Stage<'_>) -> Result<(), Failure> {
    const MARGIN: Duration = Duration::from_secs(3);

    let lease = stage.short(Duration::from_millis(300));
    let proxy = Proxy::start(stage.stores.redis().addr())?;
    let behind_the_first = {
        let (key, earlier) = (stage.key.clone(), Arc::new(AtomicUsize::new(0)));
        let about_the_lock = Request::any().with_part(&key);
        Request::matching(move |arguments| {
            about_the_lock.matches(arguments) && earlier.fetch_add(1, Ordering::Relaxed) > 0
        })
    };
    let held = proxy.when(behind_the_first).hold_request();

    let crashing = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let acquiring = {
        let (strategy, seat, actor, key): (Strategy, _, _, _) =
            (*stage.strategy, stage.seat_behind(&proxy), stage.history.actor("a"), stage.key.clone());
        crashing.spawn(async move {
            let lock = strategy.connect(&seat).await?.lock(&key)?.lease(lease);
            let attempt = actor.acquiring(key.as_str());
            let guard = lock.acquire().await?;
            Ok::<_, Failure>((attempt.granted(guard.fencing_token(), guard.deadline()), guard))
        })
    };
    let holding = tokio::select! {
        () = held.seen() => None,
        granted = acquiring => Some(granted??),
    };
    crash(crashing, proxy);
    stage.history.ended("a");
    // Its guard is dropped when nothing of A can send any more.
    drop((holding, held));

    let b = stage.player("b").await?;
    let bound = lease.ttl() + MARGIN;
    let probe = b.actor.probing(stage.key.as_str(), bound);
    match b.lock.clone().lease(lease).acquire_within(bound).await {
        Ok(guard) => {
            probe.succeeded();
            let _ = guard.release().await?;
        }
        Err(error) if error.kind() == lock_core::ErrorKind::TimedOut => probe.gave_up(),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Ends a client as a crash does: the network first, so that nothing that is dropped can say good-bye.
fn crash(client: Runtime, proxy: Proxy) {
    drop(proxy);
    client.shutdown_background();
}
