use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::select_all;
use lock_testkit::fault::Request;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::{takes_the_lock, warm_up};
use crate::Failure;
use crate::lab::Stage;
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

pub(super) const CRASH: Scenario = Scenario {
    id: "S01",
    title: "the client dies between SETNX and EXPIRE",
    steps: &[
        "A acquires; the store applies the request that takes the lock, and its reply is held in the network",
        "A is killed: SetnxExpire has sent its SETNX, and nobody will send the EXPIRE",
        "long after every lease, a fresh client wants the lock",
    ],
    breaks_by: &[Observable::Stuck],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("its table dies with its holders")),
        (
            &[SetnxExpire],
            Expected::Breaks("the entry has no ttl until the second command, and nobody sends it any more"),
        ),
        (&[GetSet], Expected::Holds("the entry is an expiry stamp, and whoever comes later reads it")),
        (
            &[BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::Holds("one command, or one script, sets the entry and its ttl"),
        ),
        (&[Etcd], Expected::Holds("the key comes into being under a lease")),
        (&[ZooKeeper], Expected::Holds("the node comes into being as an ephemeral one of a session")),
    ],
    play: |stage| crash(stage).boxed(),
};

async fn crash(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = stage.frail("a").await?;
    warm_up(stage, &a).await?;
    let applied: Vec<_> = a.proxies().iter().map(|proxy| proxy.when(takes_the_lock(stage)).hold_reply()).collect();
    let _acquiring = a.trying(stage.short())?;
    for applied in &applied {
        applied.seen().await;
    }
    a.kill()?;
    stage.probe_long_after().await
}

pub(super) const LOST_EXPIRE: Scenario = Scenario {
    id: "S02",
    title: "EXPIRE is lost with its connection, and the client dies before it could mend that",
    steps: &[
        "A acquires; the EXPIRE is held in the network, if there is one: only SetnxExpire sends it, the others are granted",
        "the connection is cut, and the EXPIRE with it; no other connection is to be had",
        "A is killed, before its driver could undo anything",
        "long after every lease, a fresh client wants the lock",
    ],
    breaks_by: &[Observable::Stuck],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("a call of a function is not lost")),
        (
            &[SetnxExpire],
            Expected::Breaks("the SETNX was applied, the EXPIRE was not, and the driver's undo died with A"),
        ),
        (&[GetSet], Expected::Holds("the entry is an expiry stamp, and whoever comes later reads it")),
        (
            &[BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::Holds("the ttl came with the request that took the lock"),
        ),
        (&[Etcd, ZooKeeper], Expected::Holds("the lease, or the session, was there before the entry")),
    ],
    play: |stage| lost_expire(stage).boxed(),
};

async fn lost_expire(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = stage.frail("a").await?;
    warm_up(stage, &a).await?;
    let expire = || {
        let is_it = |command: &Bytes| command.to_ascii_uppercase().ends_with(b"EXPIRE");
        Request::matching(move |arguments| arguments.first().is_some_and(is_it)).with_part(&stage.key)
    };
    let lost: Vec<_> = a.proxies().iter().map(|proxy| proxy.when(expire()).hold_request()).collect();
    let sent = select_all(lost.iter().map(|lost| lost.seen().boxed()));
    tokio::select! {
        _ = sent => {}
        outcome = a.trying(stage.short())?.outcome() => drop(outcome?),
    }
    for proxy in a.proxies() {
        proxy.refuse_connections();
        proxy.cut_connections();
    }
    a.kill()?;
    stage.probe_long_after().await
}
