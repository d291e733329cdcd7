use futures_util::FutureExt;
use lock_testkit::RedisServer;
use lock_testkit::history::Observable;

use super::super::{Expected, Scenario};
use crate::lab::{Answer, Stage};
use crate::strategy::Kind::{
    BlindDelete, Etcd, GetSet, Memory, Redlock, RedlockFenced, Reentrant, SetnxExpire, Token, TokenWatch, ZooKeeper,
};
use crate::{Failure, Store};

pub(super) const SAME_OWNER: Scenario = Scenario {
    id: "S09",
    title: "two clients have drawn the same owner",
    steps: &[
        "A acquires for owner 1, as host and pid are the same in two containers, and reads the guarded counter",
        "B tries for owner 1 too; if granted, B adds one and releases, else B undoes what may be left of its try",
        "C tries to acquire what A still holds",
        "A writes what it read plus one, and releases",
    ],
    breaks_by: &[Observable::LostUpdate, Observable::Stolen, Observable::InLeaseOverlap],
    beside: &[],
    expected: &[
        (
            &[Memory, Reentrant],
            Expected::Breaks(
                "who names an owner re-enters, so both are inside: let the driver draw owners, of 128 random bits",
            ),
        ),
        (
            &[SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Redlock, RedlockFenced, Etcd, ZooKeeper],
            Expected::Holds("the entry bears the claim's own 128 random bits, and no owner"),
        ),
    ],
    play: |stage| same_owner(stage).boxed(),
};

async fn same_owner(stage: &Stage<'_>) -> Result<(), Failure> {
    const OWNER: u128 = 1;

    let counter = stage.table(false);
    let a = stage.contender("a").await?;
    let (b, c) = (stage.beside(&a, "b").await?, stage.beside(&a, "c").await?);
    let ours = a.claim_for(stage.long(), Some(OWNER));
    granted(&ours.try_acquire().await?)?;
    let read = a.read(&counter).await?;

    let theirs = b.claim_for(stage.long(), Some(OWNER));
    match theirs.try_acquire().await? {
        Answer::Granted { .. } => {
            let value = b.read(&counter).await?;
            b.write_bare(&counter, value + 1).await?;
            theirs.release().await?;
        }
        Answer::Busy => drop(theirs.abandon().await?),
        other => return Err(format!("B tries, and the answer is {other:?}").into()),
    }
    if let Some(third) = c.try_acquire(stage.long()).await? {
        third.release().await?;
    }
    a.write_bare(&counter, read + 1).await?;
    ours.release().await?;
    Ok(())
}

fn granted(answer: &Answer) -> Result<(), Failure> {
    match answer {
        Answer::Granted { .. } => Ok(()),
        other => Err(format!("the lock is free, and the answer is {other:?}").into()),
    }
}

pub(super) const FOREIGN_VALUE: Scenario = Scenario {
    id: "S10",
    title: "the lock's key holds something else",
    steps: &[
        "A acquires with a long lease",
        "an application writes a value of its own over A's entry: on Redis a list, in etcd and ZooKeeper a text",
        "B tries to acquire: it must not be granted",
        "the value is an empty text instead; B tries again",
    ],
    breaks_by: &[Observable::InLeaseOverlap],
    beside: &[Observable::RawOverlap],
    expected: &[
        (&[Memory], Expected::CannotApply("nothing but the lock can write in its table")),
        (
            &[SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant, Redlock, RedlockFenced],
            Expected::Holds(
                "a key of another type is an error that names it, and a text that is not ours is another's",
            ),
        ),
        (&[Etcd], Expected::Holds("the order of the queue decides, and not what its keys hold")),
        (&[ZooKeeper], Expected::Holds("the order of the nodes decides, and not what they hold")),
    ],
    play: |stage| foreign_value(stage).boxed(),
};

async fn foreign_value(stage: &Stage<'_>) -> Result<(), Failure> {
    let (a, b) = (stage.contender("a").await?, stage.contender("b").await?);
    let _held = a.acquire(stage.long()).await?;
    for value in ["user data", ""] {
        overwrite(stage, value).await?;
        // It may be told that it is busy, or of an error.
        drop(b.trying(stage.long())?.outcome().await?);
    }
    Ok(())
}

/// Writes `value` over all that the store has of the lock.
async fn overwrite(stage: &Stage<'_>, value: &str) -> Result<(), Failure> {
    let overwritten = match stage.kind().store() {
        Store::Process => 0,
        Store::Redis => overwrite_redis(&stage.lab.redis().server, &stage.key, value)?,
        Store::Nodes => {
            let mut overwritten = 0;
            for node in stage.lab.nodes()? {
                overwritten += overwrite_redis(&node.server, &stage.key, value)?;
            }
            overwritten
        }
        Store::Etcd => overwrite_etcd(&stage.lab.etcd()?.urls(), &stage.key, value).await?,
        Store::ZooKeeper => overwrite_zookeeper(&stage.lab.zookeeper()?.hosts(), &stage.key, value).await?,
    };
    if overwritten == 0 { Err("the store has nothing of the lock".into()) } else { Ok(()) }
}

/// A list, or an empty text.
fn overwrite_redis(server: &RedisServer, lock: &str, value: &str) -> Result<usize, Failure> {
    let keys: Vec<String> = server.command(&["KEYS", &format!("*{lock}*")])?;
    for key in &keys {
        server.command::<()>(&["DEL", key])?;
        let write = if value.is_empty() { "SET" } else { "LPUSH" };
        server.command::<()>(&[write, key, value])?;
    }
    Ok(keys.len())
}

async fn overwrite_etcd(urls: &[String], lock: &str, value: &str) -> Result<usize, Failure> {
    let mut etcd = etcd_client::Client::connect(urls, None).await?;
    let all = etcd.get("", Some(etcd_client::GetOptions::new().with_all_keys())).await?;
    let mut overwritten = 0;
    for found in all.kvs().iter().filter(|found| String::from_utf8_lossy(found.key()).contains(lock)) {
        etcd.put(found.key(), value, None).await?;
        overwritten += 1;
    }
    Ok(overwritten)
}

async fn overwrite_zookeeper(hosts: &str, lock: &str, value: &str) -> Result<usize, Failure> {
    const ROOT: &str = "/hasp";

    let zookeeper = zookeeper_client::Client::connect(hosts).await?;
    let mut overwritten = 0;
    for path in zookeeper.list_children(ROOT).await?.iter().filter(|path| path.contains(lock)) {
        for node in zookeeper.list_children(&format!("{ROOT}/{path}")).await? {
            zookeeper.set_data(&format!("{ROOT}/{path}/{node}"), value.as_bytes(), None).await?;
            overwritten += 1;
        }
    }
    Ok(overwritten)
}
