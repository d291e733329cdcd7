use std::time::Duration;

use futures_util::FutureExt;
use lock_core::{ErrorKind, Lease};
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use crate::Failure;
use crate::lab::Stage;
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};

/// `EXPIRE key 0` deletes the key (redis.io, EXPIRE).
pub(super) const HALF_A_SECOND: Scenario = Scenario {
    id: "S03",
    title: "a ttl of half a second, and a store that counts in seconds",
    steps: &[
        "A acquires for half a second; where that is refused as too short, for one and a half",
        "B waits for the lock, and has it as soon as the store has ended A's lease",
        "that must not be before the deadline that A was told",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (
            &[SetnxExpire, Etcd],
            Expected::Holds(
                "half a second is refused, one and a half are rounded up to two; cut off they would be one",
            ),
        ),
        (
            &[Memory, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::Holds("it counts in milliseconds, and rounds up what is left"),
        ),
        (&[ZooKeeper], Expected::Holds("the session outlives the lease, which the client itself ends at its deadline")),
    ],
    play: |stage| half_a_second(stage).boxed(),
};

async fn half_a_second(stage: &Stage<'_>) -> Result<(), Failure> {
    let a = stage.contender("a").await?;
    let b = stage.beside(&a, "b").await?;
    for ttl in [500, 1_500].map(Duration::from_millis) {
        match a.trying(Lease::fixed(ttl))?.outcome().await? {
            Ok(_held) => {
                b.acquire(stage.long()).await?.release().await?;
                return Ok(());
            }
            Err(answer) if answer.is_error(ErrorKind::InvalidInput) => {}
            Err(answer) => return Err(format!("A asks for {ttl:?}, and the answer is {answer:?}").into()),
        }
    }
    Err("neither ttl is accepted".into())
}
