use lock_testkit::{EtcdCluster, ZooKeeperEnsemble};
use serde_json::json;

use crate::lab::{Place, Stage};
use crate::{Failure, Store};

/// Three members that decide by majority.
pub(super) enum Members {
    Etcd(EtcdCluster),
    ZooKeeper(ZooKeeperEnsemble),
}

impl Members {
    pub(super) fn start(stage: &Stage<'_>) -> Result<Self, Failure> {
        Ok(match stage.kind().store() {
            Store::Etcd => Self::Etcd(EtcdCluster::builder().members(3).start()?),
            // Followers give up a silent leader after eight ticks of 200 ms; the testkit's own choice is 25.
            Store::ZooKeeper => Self::ZooKeeper(
                ZooKeeperEnsemble::builder(3).config("maxSessionTimeout", "60000").config("syncLimit", "8").start()?,
            ),
            Store::Process | Store::Redis | Store::Nodes => return Err("this store has no members".into()),
        })
    }

    pub(super) fn place(&self) -> Place {
        match self {
            Self::Etcd(cluster) => Place::etcd(cluster),
            Self::ZooKeeper(ensemble) => Place::zookeeper(ensemble),
        }
    }

    pub(super) fn kill(&self, member: usize) -> Result<(), Failure> {
        match self {
            Self::Etcd(cluster) => cluster.member(member).kill()?,
            Self::ZooKeeper(ensemble) => ensemble.kill(member)?,
        }
        Ok(())
    }

    pub(super) fn stop(&self, member: usize) -> Result<(), Failure> {
        match self {
            Self::Etcd(cluster) => cluster.member(member).stop()?,
            Self::ZooKeeper(ensemble) => ensemble.stop(member)?,
        }
        Ok(())
    }

    pub(super) fn cont(&self, member: usize) -> Result<(), Failure> {
        match self {
            Self::Etcd(cluster) => cluster.member(member).cont()?,
            Self::ZooKeeper(ensemble) => ensemble.cont(member)?,
        }
        Ok(())
    }

    /// Who leads, when somebody does.
    pub(super) async fn leader(&self, stage: &Stage<'_>) -> Result<usize, Failure> {
        self.leader_of(stage, &[0, 1, 2]).await
    }

    /// Who leads when this one does not any more.
    pub(super) async fn leader_after(&self, stage: &Stage<'_>, old: usize) -> Result<usize, Failure> {
        let others: Vec<_> = (0..3).filter(|member| *member != old).collect();
        self.leader_of(stage, &others).await
    }

    async fn leader_of(&self, stage: &Stage<'_>, members: &[usize]) -> Result<usize, Failure> {
        let mut leader = None;
        let find = || {
            leader = members.iter().copied().find(|member| self.leads(*member));
            Ok(leader.is_some())
        };
        stage.until("somebody leads", find).await?;
        leader.ok_or_else(|| "nobody leads".into())
    }

    /// One that does not answer does not lead.
    fn leads(&self, member: usize) -> bool {
        match self {
            Self::Etcd(cluster) => {
                let status = cluster.member(member).call("/v3/maintenance/status", &json!({}));
                status.is_ok_and(|status| status["leader"] == status["header"]["member_id"])
            }
            Self::ZooKeeper(ensemble) => {
                ensemble.command(member, "srvr").is_ok_and(|answer| answer.contains("Mode: leader"))
            }
        }
    }
}
