//! What the trials stand on: servers, and drivers that are connected to them.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_testkit::{EtcdCluster, Process, RedisServer, ZooKeeperEnsemble};

use crate::client::{Client, Store};
use crate::driver::Driver;

/// Whose driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Theirs,
    Ours,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Theirs => Self::Ours,
            Self::Ours => Self::Theirs,
        }
    }
}

/// One server of each kind for all trials, started when the first of them needs it.
#[derive(Debug, Default)]
pub(crate) struct Ground {
    etcd: OnceLock<EtcdCluster>,
    redis: OnceLock<RedisServer>,
    zookeeper: OnceLock<ZooKeeperEnsemble>,
    names: AtomicU32,
}

impl Ground {
    pub(crate) fn redis(&self) -> &RedisServer {
        self.redis.get_or_init(|| RedisServer::start().unwrap())
    }

    /// The name of a lock that no other trial has.
    pub(crate) fn name(&self) -> String {
        format!("lock-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// A driver of one side, whose holds end `lease` after it has died.
    pub(crate) fn driver(&self, client: &Client, side: Side, lease: Duration) -> Driver {
        let address = match client.store {
            Store::Etcd => self.etcd.get_or_init(|| EtcdCluster::start().unwrap()).urls().remove(0),
            Store::Redis => self.redis().url(),
            Store::ZooKeeper => self.zookeeper.get_or_init(zookeeper).hosts(),
        };
        let (mut command, prefix) = match side {
            Side::Theirs => (theirs(client), client.prefix),
            Side::Ours => {
                let mut command = Process::command(std::env::current_exe().unwrap());
                command.args(["drive", client.ours]);
                (command, "")
            }
        };
        command.arg(address).arg(lease.as_millis().to_string());
        Driver::start(command, prefix)
    }
}

/// Sessions may last from 1 to 10 s, and empty containers are removed after half a second instead of a minute.
fn zookeeper() -> ZooKeeperEnsemble {
    ZooKeeperEnsemble::builder(1)
        .tick(Duration::from_millis(500))
        .property("znode.container.checkIntervalMs", "500")
        .start()
        .unwrap()
}

fn theirs(client: &Client) -> std::process::Command {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let drivers = package.join("drivers");
    // `./x interop` says where it has put them.
    let fetched = std::env::var("HASP_INTEROP").expect("`./x interop` runs this program");
    let mut words = client
        .command
        .iter()
        .map(|word| word.replace("{fetched}", &fetched).replace("{drivers}", drivers.to_str().unwrap()));
    let mut command = Process::command(words.next().unwrap());
    command.args(words);
    command
}
