//! The message that the lock is free goes astray.

use etcd_client::{Client, KvClient};
use futures_util::FutureExt;
use lock_testkit::fault::{Armed, Request};
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::{at_once, is_told, listens, waits, woken};
use crate::Failure;
use crate::lab::{PATIENCE, Stage};
use crate::strategy::Kind::{
    self, BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch,
    ZooKeeper,
};

/// Redisson's release notes tell of waiters who "miss unlock messages and wait a defined timeout ... or hang".
pub(super) const BEFORE_SUBSCRIBE: Scenario = Scenario {
    id: "S50",
    title: "the release is told before the waiter listens",
    steps: &[
        "A holds; B tries, and is told \"busy\"",
        "B's request to be told (SUBSCRIBE, Watch, exists) is held in the network; of one who only asks again, the answer \"busy\"",
        "A releases, and the store tells those who listen: nobody",
        "B's request goes on its way: B must have the lock at once, and not after its next sleep",
    ],
    breaks_by: &[Observable::LostWakeup],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("a waiter stands in the table's own queue: there is no message to miss")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Redlock, RedlockFenced],
            Expected::Holds("it relies on no message: it asks again soon, ten times a second"),
        ),
        (
            &[Token, TokenWatch, Reentrant],
            Expected::Holds("when it is subscribed it tries again, and only then sleeps"),
        ),
        (&[Etcd], Expected::Holds("a watch that begins after something was written makes it look once more")),
        (&[ZooKeeper], Expected::Holds("who is to be watched is gone, so it looks again")),
    ],
    play: |stage| before_subscribe(stage).boxed(),
};

async fn before_subscribe(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    let held = a.acquire(stage.long()).await?;
    let late = |proxy: &lock_testkit::fault::Proxy| {
        if is_told(stage.kind()) {
            proxy.when(listens(stage)).hold_request()
        } else {
            proxy.when(Request::any().with_part(&stage.key)).hold_reply()
        }
    };
    let late: Vec<_> = b.proxies().iter().map(late).collect();
    let waiting = b.acquiring(stage.long(), PATIENCE)?;
    for late in &late {
        late.seen().await;
    }
    held.release().await?;
    stage.history.found_free_for(&*stage.key, b.name(), at_once(stage));
    late.iter().for_each(Armed::release);
    if let Some(held) = woken(stage, &b, waiting, at_once(stage)).await? {
        held.release().await?;
    }
    Ok(())
}

pub(super) const CONNECTION_DIES: Scenario = Scenario {
    id: "S51",
    title: "the connection dies by which the waiter listens",
    steps: &[
        "A holds; B waits, and listens",
        "B's connections are cut, and new ones do not get through",
        "A releases, and the store tells those who listen: nobody",
        "the network is well again: B must have the lock as soon as it is connected, and not after its next sleep",
    ],
    breaks_by: &[Observable::LostWakeup],
    beside: &[],
    expected: &[
        (
            &[Memory, SetnxExpire, GetSet, BlindDelete, Redlock, RedlockFenced],
            Expected::CannotApply("a waiter listens to nobody over a network"),
        ),
        (
            &[Token, TokenWatch, Reentrant],
            Expected::Holds("a lost connection wakes every waiter, and so does the new subscription"),
        ),
        (&[Etcd], Expected::Holds("when a watch ends it looks again, and watches anew")),
        (&[ZooKeeper], Expected::Holds("the client sets its watches anew, and the server tells what was missed")),
    ],
    play: |stage| connection_dies(stage).boxed(),
};

async fn connection_dies(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    let held = a.acquire(stage.long()).await?;
    let waiting = b.acquiring(stage.long(), PATIENCE)?;
    waits(stage, b.proxies()).await?;
    b.proxy().black_hole();
    b.proxy().cut_connections();
    held.release().await?;
    stage.history.found_free_for(&*stage.key, b.name(), at_once(stage));
    b.proxy().heal();
    if let Some(held) = woken(stage, &b, waiting, at_once(stage)).await? {
        held.release().await?;
    }
    Ok(())
}

pub(super) const WATCH_LOST: Scenario = Scenario {
    id: "S55",
    title: "what the watch has to tell is lost with its connection",
    steps: &[
        "A holds; B waits, and watches A's entry",
        "A releases; the notification is lost together with B's connection",
        "B must have the lock as soon as it is connected, and not after its next sleep",
    ],
    breaks_by: &[Observable::LostWakeup],
    beside: &[],
    expected: &[
        (NO_WATCH, WATCHES_NOTHING),
        (&[Etcd], Expected::Holds("when a watch ends, for whatever reason, it looks again")),
        (&[ZooKeeper], Expected::Holds("the client sets its watches anew, and the server tells what was missed")),
    ],
    play: |stage| watch_lost(stage).boxed(),
};

const NO_WATCH: &[Kind] =
    &[Memory, SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced];

const WATCHES_NOTHING: Expected = Expected::CannotApply("its waiters watch no entry; S50 and S51 are about messages");

async fn watch_lost(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    let held = a.acquire(stage.long()).await?;
    let watches = b.proxy().when(listens(stage)).hold_reply();
    let waiting = b.acquiring(stage.long(), PATIENCE)?;
    watches.seen().await;
    let lost = b.proxy().when_pushed(Request::any().with_part(&stage.key)).lose();
    held.release().await?;
    watches.release();
    lost.seen().await;
    stage.history.found_free_for(&*stage.key, b.name(), at_once(stage));
    if let Some(held) = woken(stage, &b, waiting, at_once(stage)).await? {
        held.release().await?;
    }
    Ok(())
}

pub(super) const COMPACTED: Scenario = Scenario {
    id: "S55compact",
    title: "etcd compacts the revisions away from which a watch is to begin",
    steps: &[
        "A holds; B waits, and its request to watch A's key is late",
        "A releases, others write, and all revisions but the last are compacted away",
        "B's request arrives: there is nothing to be told of any more, but B must have the lock at once",
    ],
    breaks_by: &[Observable::LostWakeup],
    beside: &[],
    expected: &[
        (NO_WATCH, WATCHES_NOTHING),
        (&[Etcd], Expected::Holds("a watch that begins after something was written makes it look once more")),
        (&[ZooKeeper], Expected::CannotApply("a watch is of the node as it is now: there are no earlier ones")),
    ],
    play: |stage| compacted(stage).boxed(),
};

async fn compacted(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    let held = a.acquire(stage.long()).await?;
    let late = b.proxy().when(listens(stage)).hold_request();
    let waiting = b.acquiring(stage.long(), PATIENCE)?;
    late.seen().await;
    held.release().await?;
    compact(&stage.lab.etcd()?.urls()).await?;
    stage.history.found_free_for(&*stage.key, b.name(), at_once(stage));
    late.release();
    if let Some(held) = woken(stage, &b, waiting, at_once(stage)).await? {
        held.release().await?;
    }
    Ok(())
}

/// Has etcd forget every revision but the last.
async fn compact(urls: &[String]) -> Result<(), Failure> {
    let mut etcd: KvClient = Client::connect(urls, None).await?.kv_client();
    etcd.put("later", "", None).await?;
    let put = etcd.put("later", "", None).await?;
    let revision = put.header().ok_or("etcd tells no revision")?.revision();
    etcd.compact(revision, None).await?;
    Ok(())
}
