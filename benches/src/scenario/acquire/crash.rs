use futures_util::FutureExt;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::{begins_the_lease, takes_the_lock, warm_up};
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
        "A acquires; the request that begins the lease (the EXPIRE, or what takes the lock) is held in the network",
        "the connection is cut, and the request with it; no other is to be had",
        "A is killed",
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
        (
            &[GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced, Etcd, ZooKeeper],
            Expected::Holds("the request that takes the lock is also the one that ends it: nothing of it was applied"),
        ),
    ],
    play: |stage| lost_expire(stage).boxed(),
};

async fn lost_expire(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = stage.frail("a").await?;
    warm_up(stage, &a).await?;
    let lost: Vec<_> = a.proxies().iter().map(|proxy| proxy.when(begins_the_lease(stage)).hold_request()).collect();
    let _acquiring = a.trying(stage.short())?;
    for (proxy, lost) in a.proxies().iter().zip(&lost) {
        lost.seen().await;
        proxy.refuse_connections();
        proxy.cut_connections();
    }
    a.kill()?;
    stage.probe_long_after().await
}
