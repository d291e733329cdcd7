//! The floors of the strategies that keep their locks in other stores than one Redis.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::aio::ConnectionManager;
use redis::cmd;
use zookeeper_client::{Acls, CreateMode};

use super::{COMPARE_AND_DELETE, TTL_MS, evalsha, multiplexed};
use crate::{Failure, Stores};

/// Two transactions on one connection: put a key under a lease if it is new, and delete it.
#[derive(Clone)]
pub(super) struct EtcdTxns {
    /// Boxed: it is many times as large as the other floors.
    client: Box<etcd_client::Client>,
    lease: i64,
}

impl EtcdTxns {
    pub(super) async fn connect(stores: &Stores) -> Result<Self, Failure> {
        const TTL_S: i64 = 3_600;

        let mut client = etcd_client::Client::connect(stores.etcd()?.urls(), None).await?;
        let lease = client.lease_grant(TTL_S, None).await?.id();
        Ok(Self { client: Box::new(client), lease })
    }

    pub(super) async fn put(&self, name: &str) -> Result<(), Failure> {
        self.client.kv_client().txn(Txn::new().and_then([TxnOp::put(name, "", None)])).await?;
        Ok(())
    }

    pub(super) async fn pair(&self, name: &str) -> Result<(), Failure> {
        let mut kv = self.client.kv_client();
        let put = TxnOp::put(name, "", Some(PutOptions::new().with_lease(self.lease)));
        let new = Compare::create_revision(name, CompareOp::Equal, 0);
        let answer = kv.txn(Txn::new().when([new]).and_then([put])).await?;
        if !answer.succeeded() {
            return Err("a raw transaction found its own key taken".into());
        }
        let revision = answer.header().ok_or("etcd answered without a header")?.revision();
        let ours = Compare::create_revision(name, CompareOp::Equal, revision);
        let answer = kv.txn(Txn::new().when([ours]).and_then([TxnOp::delete(name, None)])).await?;
        if answer.succeeded() { Ok(()) } else { Err("a raw transaction did not find its own key".into()) }
    }
}

/// A create of an ephemeral sequential node and a delete, on one session.
#[derive(Clone)]
pub(super) struct ZooKeeperNodes {
    client: zookeeper_client::Client,
}

impl ZooKeeperNodes {
    pub(super) async fn connect(stores: &Stores) -> Result<Self, Failure> {
        Ok(Self { client: zookeeper_client::Client::connect(&stores.zookeeper()?.hosts()).await? })
    }

    pub(super) async fn pair(&self, name: &str) -> Result<(), Failure> {
        let path = format!("/raw-{}-", name.replace('/', "-"));
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (_, sequence) = self.client.create(&path, &[], &options).await?;
        Ok(self.client.delete(&format!("{path}{sequence}"), None).await?)
    }
}

/// `SET NX PX`, then a compare-and-delete by EVALSHA, on all nodes at once; each is over with the answer that makes a
/// majority.
#[derive(Clone)]
pub(super) struct Quorum {
    nodes: Arc<[ConnectionManager]>,
}

impl Quorum {
    pub(super) async fn connect(stores: &Stores) -> Result<Self, Failure> {
        let mut nodes = Vec::new();
        for url in stores.nodes()?.urls() {
            let mut node = multiplexed(&url).await?;
            let _digest: String = COMPARE_AND_DELETE.load_async(&mut node).await?;
            nodes.push(node);
        }
        Ok(Self { nodes: nodes.into() })
    }

    pub(super) async fn pair(&self, name: &str, value: &str) -> Result<(), Failure> {
        let mut set = cmd("SET");
        set.arg(name).arg(value).arg("NX").arg("PX").arg(TTL_MS);
        self.majority(&set).await?;
        self.majority(&evalsha(&COMPARE_AND_DELETE, &[name], &[value])).await
    }

    async fn majority(&self, command: &redis::Cmd) -> Result<(), Failure> {
        let mut answers: FuturesUnordered<_> = self
            .nodes
            .iter()
            .map(|node| {
                let (mut node, command) = (node.clone(), command.clone());
                // A task of its own, because the slower ones go on when the majority is there.
                tokio::spawn(async move { command.query_async::<redis::Value>(&mut node).await })
            })
            .collect();
        for _ in 0..=self.nodes.len() / 2 {
            answers.next().await.ok_or("there are no nodes")???;
        }
        Ok(())
    }
}
