use futures_util::FutureExt;
use lock_testkit::fault::{Armed, Request};
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use crate::Failure;
use crate::lab::{PATIENCE, Stage};
use crate::strategy::Kind;

/// Redisson #7272: the end of a renewal comes before its beginning, and it goes on for ever.
pub(super) const OUTLIVE: Scenario = Scenario {
    id: "S28",
    title: "does a renewal outlive its lock?",
    steps: &[
        "A acquires with a lease that is renewed, and releases at once; and drops its guard at once: twenty times each",
        "A begins to acquire once more; the store's reply is held in the network; A does not want it any more; it arrives",
        "A acquires with a short, fixed lease (for the same owner, where there are owners), and never gives it back",
        "that lease ends: nothing of A may keep it alive, so a fresh client gets the lock",
    ],
    breaks_by: &[Observable::Stuck],
    beside: &[],
    expected: &[(
        &Kind::ALL,
        Expected::Holds(
            "the lock is on the keeper's agenda before the guard is handed out, and off it before the release",
        ),
    )],
    play: |stage| outlive(stage).boxed(),
};

async fn outlive(stage: &Stage<'_>) -> Result<(), Failure> {
    const TIMES: usize = 20;

    let a = stage.contender("a").await?;
    let prober = stage.beside(&a, "prober").await?;
    let owner = (stage.kind() == Kind::Reentrant).then_some(7);
    for _ in 0..TIMES {
        a.acquiring_for(stage.renewed(), PATIENCE, owner)?.held().await?.release().await?;
        a.acquiring_for(stage.renewed(), PATIENCE, owner)?.held().await?.drop_guard().await?;
    }
    // Without a network it is over before anybody could think better of it.
    if !a.proxies().is_empty() {
        let of_the_lock = || Request::any().with_part(&stage.key);
        let replies: Vec<_> = a.proxies().iter().map(|proxy| proxy.when(of_the_lock()).hold_reply()).collect();
        let unwanted = a.acquiring_for(stage.renewed(), PATIENCE, owner)?;
        for reply in &replies {
            reply.seen().await;
        }
        unwanted.cancel().await?;
        replies.iter().for_each(Armed::release);
    }
    a.acquiring_for(stage.short(), PATIENCE, owner)?.held().await?;
    prober.probe(stage.short(), stage.bound()).await
}
