//! Family I: one owner holds a lock more than once.

use futures_util::FutureExt;
use lock_testkit::history::Observable;

use super::acquire::{takes_the_lock, warm_up};
use super::{Expected, Scenario};
use crate::Failure;
use crate::lab::{Answer, Claimed, Contender, PATIENCE, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

pub(super) const ALL: &[Scenario] = &[COUNTED_TWICE];

/// Redisson sends its acquire with `NoRetry` for this reason.
const COUNTED_TWICE: Scenario = Scenario {
    id: "S63",
    title: "the reply of an acquire is lost, and the repeat counts a second time",
    steps: &[
        "A acquires for an owner; the store counts one hold, and the reply is lost with its connection",
        "A tries again for the same claim, and is granted: the store must still count one",
        "A acquires for the same owner once more, by another claim, and again the reply is lost and the try repeated: two",
        "A releases one: one is left; A releases the other: none is, and a fresh client must get the lock at once",
    ],
    breaks_by: &[Observable::CountCorruption, Observable::Stuck],
    beside: &[],
    expected: &[
        (&[Memory], Expected::CannotApply("a call of a function has no reply that could be lost")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Redlock, RedlockFenced, Etcd, ZooKeeper],
            Expected::CannotApply("nobody holds it more than once; S04 loses its reply"),
        ),
        (&[Reentrant], Expected::Holds("beside the count is the set of the claims that are counted, each once")),
    ],
    play: |stage| counted_twice(stage).boxed(),
};

const OWNER: u128 = 0x6861_7370;

async fn counted_twice(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = stage.contender("a").await?;
    warm_up(stage, &a.on(&format!("{}+", stage.key))).await?;
    let claims = [a.claim_for(stage.long(), Some(OWNER)), a.claim_for(stage.long(), Some(OWNER))];
    for claim in &claims {
        acquire_twice(stage, &a, claim).await?;
        count(stage)?;
    }
    for claim in &claims {
        claim.release().await?;
        count(stage)?;
    }
    stage.probe_at_once().await
}

/// Acquires for a claim, loses the reply, and asks again until there is one.
async fn acquire_twice(stage: &Stage<'_>, a: &Contender, claim: &Claimed) -> Result<(), Failure> {
    let lost = a.proxy().when(takes_the_lock(stage)).lose_reply();
    let mut answer = claim.try_acquire().await?;
    lost.seen().await;
    let until = stage.lab.clocks().lab_now()? + PATIENCE;
    while matches!(answer, Answer::Error { .. }) && stage.lab.clocks().lab_now()? < until {
        answer = claim.try_acquire().await?;
    }
    match answer {
        Answer::Granted { .. } => Ok(()),
        other => Err(format!("A tries again, and the answer is {other:?}").into()),
    }
}

/// Writes down how many holds the store counts: the lock is a hash with one field, the owner.
fn count(stage: &Stage<'_>) -> Result<(), Failure> {
    let counts: Vec<u64> = stage.lab.redis().server.command(&["HVALS", &stage.key])?;
    stage.history.found_count(&*stage.key, OWNER.to_string(), counts.iter().sum());
    Ok(())
}
