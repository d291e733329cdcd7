//! The servers that a soak torments, each of them by one fault at a time.

use std::sync::Arc;
use std::time::Duration;

use lock_testkit::RedisServer;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::block_in_place;

use crate::lab::{Clocked, Lab, Place};
use crate::{Failure, Store};

/// The store's servers. What they have acknowledged survives their being killed, but for Redlock's nodes, which keep nothing.
pub(super) struct Servers {
    lab: Arc<Lab>,
    store: Store,
    /// The one Redis, beside the lab's own, which keeps the guarded resources.
    own: Option<Clocked<RedisServer>>,
    turns: Vec<Mutex<()>>,
}

impl Servers {
    pub(super) fn start(lab: &Arc<Lab>, store: Store) -> Result<Self, Failure> {
        // Without fsync: each command is in the file before its reply is sent, and survives the process, if not the machine.
        let kept = [("appendonly", "yes"), ("appendfsync", "no")];
        let own = (store == Store::Redis).then(|| lab.own_redis(&kept)).transpose()?;
        let count = if store == Store::Nodes { lab.nodes()?.len() } else { 1 };
        Ok(Self { lab: Arc::clone(lab), store, own, turns: (0..count).map(|_| Mutex::default()).collect() })
    }

    /// Where the contenders go.
    pub(super) fn place(&self) -> Result<Place, Failure> {
        match &self.own {
            Some(own) => Ok(Place::redis(&[&own.server])),
            None => self.lab.place(self.store),
        }
    }

    /// Stops a server for so long.
    pub(super) async fn stop(&self, server: usize, lasting: Duration) -> Result<(), Failure> {
        let _turn = self.turn(server).await;
        self.act(server, Act::Stop)?;
        tokio::time::sleep(lasting).await;
        self.act(server, Act::Cont)
    }

    /// Kills a server, and starts it again after so long.
    pub(super) async fn restart(&self, server: usize, lasting: Duration) -> Result<(), Failure> {
        let _turn = self.turn(server).await;
        self.act(server, Act::Kill)?;
        tokio::time::sleep(lasting).await;
        self.act(server, Act::Restart)
    }

    /// Sends a Redis a command as an administrator.
    pub(super) async fn command(&self, server: usize, command: &[&str]) -> Result<(), Failure> {
        let _turn = self.turn(server).await;
        block_in_place(|| self.redis(server)?.command::<redis::Value>(command).map(drop).map_err(Failure::from))
    }

    async fn turn(&self, server: usize) -> MutexGuard<'_, ()> {
        self.turns[server].lock().await
    }

    fn redis(&self, server: usize) -> Result<&RedisServer, Failure> {
        match &self.own {
            Some(own) => Ok(&own.server),
            None => Ok(&self.lab.nodes()?[server].server),
        }
    }

    fn act(&self, server: usize, act: Act) -> Result<(), Failure> {
        // A JVM takes seconds to start on a busy machine, and the other faults go on.
        block_in_place(|| {
            match self.store {
                Store::Process => Ok(()),
                Store::Redis | Store::Nodes => {
                    let redis = self.redis(server)?;
                    match act {
                        Act::Stop => redis.stop(),
                        Act::Cont => redis.cont(),
                        Act::Kill => redis.kill(),
                        Act::Restart => redis.restart(),
                    }
                }
                Store::Etcd => {
                    let etcd = self.lab.etcd()?.member(server);
                    match act {
                        Act::Stop => etcd.stop(),
                        Act::Cont => etcd.cont(),
                        Act::Kill => etcd.kill(),
                        Act::Restart => etcd.restart(),
                    }
                }
                Store::ZooKeeper => {
                    let zookeeper = self.lab.zookeeper()?;
                    match act {
                        Act::Stop => zookeeper.stop(server),
                        Act::Cont => zookeeper.cont(server),
                        Act::Kill => zookeeper.kill(server),
                        Act::Restart => zookeeper.restart(server),
                    }
                }
            }
            .map_err(Failure::from)
        })
    }
}

#[derive(Clone, Copy)]
enum Act {
    Stop,
    Cont,
    Kill,
    Restart,
}
