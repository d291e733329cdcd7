//! What an administrator sees of a lock in etcd and `ZooKeeper`, and can do to it.

use std::io;
use std::net::SocketAddr;

use etcd_client::{GetOptions, KeyValue};
use lock_testkit::fault::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Failure;
use crate::lab::{Contender, Stage};
use crate::strategy::Kind;
use crate::tell::act;

/// The entries of the lock in the store, in the order of their creation: who waits has one, too.
pub(super) async fn entries(stage: &Stage<'_>) -> Result<usize, Failure> {
    if stage.kind() == Kind::Etcd {
        return Ok(etcd_keys(stage).await?.len());
    }
    let zookeeper = zookeeper(stage).await?;
    match path(stage, &zookeeper).await? {
        Some(path) => Ok(zookeeper.list_children(&path).await?.len()),
        None => Ok(0),
    }
}

/// Waits until there are so many.
pub(super) async fn until_entries(stage: &Stage<'_>, count: usize) -> Result<(), Failure> {
    let waiting = async {
        while entries(stage).await? != count {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        Ok(())
    };
    let limit = crate::lab::PATIENCE;
    tokio::time::timeout(limit, waiting).await.map_err(|_| format!("not {count} entries within {limit:?}"))?
}

/// Ends the lease or the session under which `contender` has the entry of this place in the order. One that is to be left
/// in ignorance is cut off from the store.
pub(super) async fn end_session(
    stage: &Stage<'_>,
    contender: &Contender,
    place: usize,
    in_ignorance: bool,
) -> Result<(), Failure> {
    if stage.kind() == Kind::Etcd {
        if in_ignorance {
            contender.proxy().black_hole();
        }
        let keys = etcd_keys(stage).await?;
        let key = keys.get(place).ok_or("the lock has no entry there")?;
        let etcd = etcd_client::Client::connect(stage.lab.etcd()?.urls(), None).await?;
        act(&format!("an administrator revokes the lease of {}", contender.name()));
        etcd.lease_client().revoke(key.lease()).await?;
        return Ok(());
    }
    // Whoever shows a session's number and password may end it: it is shown when the client connects anew.
    let resumed = contender.proxy().when(Request::command("connect")).hold_reply();
    contender.proxy().cut_connections();
    resumed.seen().await;
    if in_ignorance {
        contender.proxy().black_hole();
    }
    let resumption = resumption(contender).ok_or("a client has resumed a session that has no number")?;
    act(&format!("an administrator closes the session of {}", contender.name()));
    close(stage.lab.zookeeper()?.addr(0), &resumption).await?;
    Ok(())
}

/// Deletes the path under which a lock's nodes stand; it must be empty.
pub(super) async fn delete_path(stage: &Stage<'_>) -> Result<(), Failure> {
    let zookeeper = zookeeper(stage).await?;
    let path = path(stage, &zookeeper).await?.ok_or("the lock has no path")?;
    act("an administrator deletes the lock's empty path");
    Ok(zookeeper.delete(&path, None).await?)
}

async fn etcd_keys(stage: &Stage<'_>) -> Result<Vec<KeyValue>, Failure> {
    let etcd = etcd_client::Client::connect(stage.lab.etcd()?.urls(), None).await?;
    let all = etcd.kv_client().get("", Some(GetOptions::new().with_all_keys())).await?;
    let mark = stage.key.as_bytes();
    let mut keys: Vec<_> =
        all.kvs().iter().filter(|kv| kv.key().windows(mark.len()).any(|at| at == mark)).cloned().collect();
    keys.sort_by_key(KeyValue::create_revision);
    Ok(keys)
}

async fn zookeeper(stage: &Stage<'_>) -> Result<zookeeper_client::Client, Failure> {
    Ok(zookeeper_client::Client::connect(&stage.lab.zookeeper()?.hosts()).await?)
}

/// The path of the lock, whatever stands before it.
async fn path(stage: &Stage<'_>, zookeeper: &zookeeper_client::Client) -> Result<Option<String>, Failure> {
    for root in zookeeper.list_children("/").await? {
        for child in zookeeper.list_children(&format!("/{root}")).await? {
            if child.contains(&stage.key) {
                return Ok(Some(format!("/{root}/{child}")));
            }
        }
    }
    Ok(None)
}

/// The request with which the contender's client resumed its session.
fn resumption(contender: &Contender) -> Option<Vec<u8>> {
    /// The version, the last zxid and the timeout stand before the session's number.
    const NUMBER: std::ops::Range<usize> = 16..24;

    let requests = contender.proxy().recent().into_iter().rev();
    let mut connects =
        requests.filter(|arguments| arguments[0] == "connect").filter_map(|arguments| Some(arguments.last()?.to_vec()));
    connects.find(|body| body.get(NUMBER).is_some_and(|number| number.iter().any(|byte| *byte != 0)))
}

/// Resumes the session once more and closes it.
async fn close(server: SocketAddr, resumption: &[u8]) -> io::Result<()> {
    /// The number of a request, and the code of `closeSession`.
    const CLOSE: [u8; 8] = [0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xF5];

    let mut stream = TcpStream::connect(server).await?;
    for request in [resumption, &CLOSE] {
        let length = u32::try_from(request.len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes(), request].concat()).await?;
        let length = stream.read_u32().await?;
        let mut reply = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        stream.read_exact(&mut reply).await?;
    }
    Ok(())
}
