use std::time::Duration;

use futures_util::FutureExt;
use lock_testkit::fault::Armed;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use super::{takes_the_lock, warm_up};
use crate::Failure;
use crate::lab::{Answer, Setup, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

/// For this reason Jepsen's test of etcd revokes the lease of an acquire that failed (jepsen-io/etcd, `lock.clj`).
pub(super) const LATE_ACQUIRE: Scenario = Scenario {
    id: "S05",
    title: "the acquire lands after its client has given up",
    steps: &[
        "A acquires without the driver's care; the request that takes the lock is held in the network",
        "A waits no longer, is told that the outcome is unknown, and undoes nothing",
        "the network lets the request through: it takes the lock for nobody. A is killed",
        "long after every lease, a fresh client wants the lock",
    ],
    breaks_by: &[Observable::Stuck],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("a call of a function does not land late")),
        (&[SetnxExpire], Expected::Breaks("the late SETNX makes an entry, and nobody sends its EXPIRE")),
        (&[GetSet], Expected::Holds("the late entry bears a stamp, and ends there")),
        (
            &[BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::Holds("the late entry brings its ttl, and ends by it (the driver would undo it before)"),
        ),
        (&[Etcd, ZooKeeper], Expected::Holds("the late entry ends with its lease or session, or finds that over")),
    ],
    play: |stage| late_acquire(stage).boxed(),
};

async fn late_acquire(stage: &Stage<'_>) -> Result<(), Failure> {
    const PATIENT_FOR: Duration = Duration::from_millis(300);

    let a = stage.contender_with("a", Setup::frail().with_request_limit(PATIENT_FOR)).await?;
    warm_up(stage, &a).await?;
    let late: Vec<_> = a.proxies().iter().map(|proxy| proxy.when(takes_the_lock(stage)).hold_request()).collect();
    let answer = a.claim(stage.short()).try_acquire().await?;
    if !matches!(answer, Answer::Error { without_effect: false, .. }) {
        return Err(format!("A's request is held, and the answer is {answer:?}").into());
    }
    late.iter().for_each(Armed::release);
    // It goes by the same connections, behind the late request: when it is answered, that has landed.
    a.inspect().await?;
    a.kill()?;
    stage.probe_long_after().await
}
