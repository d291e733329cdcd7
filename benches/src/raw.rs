//! The floors: what a pair costs without a lock library, on connections set up as `lock-redis` sets up its own.

mod stores;

use std::fmt;
use std::sync::LazyLock;

use deadpool_redis::{Pool, Runtime};
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, IntoConnectionInfo, ProtocolVersion, Script, cmd};

use self::stores::{EtcdTxns, Quorum, ZooKeeperNodes};
use crate::{Failure, Stores};

/// Which commands a floor sends, over which kind of connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloorKind {
    /// `SET NX PX`, then EVALSHA of a compare-and-delete, on one multiplexed connection.
    SetNx,
    /// The scripts of `lock_redis::Token`, with fencing token and PUBLISH, on one multiplexed connection.
    TokenScripts,
    /// The scripts of `lock_redis::Reentrant`, in the same way.
    ReentrantScripts,
    /// As [`SetNx`](FloorKind::SetNx), with a connection out of a pool for each command.
    SetNxPooled,
    /// As [`SetNx`](FloorKind::SetNx) on five nodes at once, each command over with the third answer.
    Quorum,
    /// A transaction that puts a key under a lease of etcd's, and one that deletes it.
    EtcdTxns,
    /// The create of an ephemeral sequential node of `ZooKeeper`'s, and its delete.
    ZooKeeperNodes,
}

impl FloorKind {
    /// Every floor.
    pub const ALL: [Self; 7] = [
        Self::SetNx,
        Self::TokenScripts,
        Self::ReentrantScripts,
        Self::SetNxPooled,
        Self::Quorum,
        Self::EtcdTxns,
        Self::ZooKeeperNodes,
    ];

    /// Its name in tables and lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SetNx => "raw-set-nx",
            Self::TokenScripts => "raw-token-scripts",
            Self::ReentrantScripts => "raw-reentrant-scripts",
            Self::SetNxPooled => "raw-set-nx-pool",
            Self::Quorum => "raw-quorum",
            Self::EtcdTxns => "raw-etcd-txns",
            Self::ZooKeeperNodes => "raw-zookeeper-nodes",
        }
    }
}

/// A connected floor. Clones share the connection.
#[derive(Clone)]
pub struct Floor {
    link: Link,
    kind: FloorKind,
}

#[derive(Clone)]
enum Link {
    Multiplexed(ConnectionManager),
    Pool(Pool),
    Quorum(Quorum),
    Etcd(EtcdTxns),
    ZooKeeper(ZooKeeperNodes),
}

impl Floor {
    /// Connects, and loads the scripts.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or refuses.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was opened is closed.
    pub async fn connect(kind: FloorKind, stores: &Stores) -> Result<Self, Failure> {
        let url = &stores.redis().url();
        let link = match kind {
            FloorKind::SetNx | FloorKind::TokenScripts | FloorKind::ReentrantScripts => {
                Link::Multiplexed(multiplexed(url).await?)
            }
            FloorKind::SetNxPooled => Link::Pool(pool(url)?),
            FloorKind::Quorum => Link::Quorum(Quorum::connect(stores).await?),
            FloorKind::EtcdTxns => Link::Etcd(EtcdTxns::connect(stores).await?),
            FloorKind::ZooKeeperNodes => Link::ZooKeeper(ZooKeeperNodes::connect(stores).await?),
        };
        let floor = Self { link, kind };
        for script in [&COMPARE_AND_DELETE, &TOKEN.0, &TOKEN.1, &REENTRANT.0, &REENTRANT.1] {
            let mut connection = floor.clone();
            match &mut connection.link {
                Link::Multiplexed(manager) => drop(script.load_async(manager).await?),
                Link::Pool(pool) => drop(script.load_async(&mut pool.get().await?).await?),
                Link::Quorum(_) | Link::Etcd(_) | Link::ZooKeeper(_) => {}
            }
        }
        Ok(floor)
    }

    /// What it takes to lock one key, worked out once.
    #[must_use]
    pub fn key(&self, name: &str) -> FloorKey {
        FloorKey {
            link: self.link.clone(),
            kind: self.kind,
            name: name.to_owned(),
            value: format!("{:032x}", fastrand::u128(..)),
            fence: format!("hasp-fence:{{{name}}}"),
            claims: format!("hasp-claims:{{{name}}}"),
            channel: format!("hasp-released:{{{name}}}"),
        }
    }

    /// One request: a PING, the way to the server and back; or of etcd a transaction, which is on the disk when it is answered.
    pub(crate) async fn once(&self) -> Result<(), Failure> {
        if let Link::Etcd(txns) = &self.link {
            return txns.put("raw-once").await;
        }
        let pong: String = ask(&self.link, &cmd("PING")).await?;
        if pong == "PONG" { Ok(()) } else { Err(format!("PING was answered {pong:?}").into()) }
    }
}

impl fmt::Debug for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Floor").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// One key of a floor. The commands are built for each pair, as a program would that has no library.
pub struct FloorKey {
    link: Link,
    kind: FloorKind,
    name: String,
    value: String,
    fence: String,
    claims: String,
    channel: String,
}

impl FloorKey {
    /// Acquires and releases once, and looks at both replies.
    ///
    /// # Errors
    ///
    /// If a command fails, or the lock was not got or not held.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the key may be left locked.
    pub async fn pair(&self) -> Result<(), Failure> {
        let Self { link, name, value, fence, claims, channel, .. } = self;
        match link {
            Link::Quorum(nodes) => return nodes.pair(name, value).await,
            Link::Etcd(txns) => return txns.pair(name).await,
            Link::ZooKeeper(nodes) => return nodes.pair(name).await,
            Link::Multiplexed(_) | Link::Pool(_) => {}
        }
        let granted = match self.kind {
            FloorKind::TokenScripts => {
                let acquire = evalsha(&TOKEN.0, &[name, fence], &[value, TTL_MS, DAY_MS]);
                ask::<i64>(link, &acquire).await? > 0
            }
            FloorKind::ReentrantScripts => {
                let acquire = evalsha(&REENTRANT.0, &[name, claims, fence], &[value, value, TTL_MS, DAY_MS]);
                ask::<i64>(link, &acquire).await? > 0
            }
            _ => {
                let set = cmd("SET").arg(name).arg(value).arg("NX").arg("PX").arg(TTL_MS).to_owned();
                ask::<Option<String>>(link, &set).await?.is_some()
            }
        };
        if !granted {
            return Err("a raw acquire found its own key taken".into());
        }
        let release = match self.kind {
            FloorKind::TokenScripts => evalsha(&TOKEN.1, &[name], &[value, channel, "PUBLISH"]),
            FloorKind::ReentrantScripts => {
                evalsha(&REENTRANT.1, &[name, claims], &[value, value, channel, "0", "PUBLISH"])
            }
            _ => evalsha(&COMPARE_AND_DELETE, &[name], &[value]),
        };
        match ask::<i64>(link, &release).await? {
            1 => Ok(()),
            answer => Err(format!("a raw release was answered {answer}, not 1").into()),
        }
    }
}

impl fmt::Debug for FloorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FloorKey").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A pool for `url`, of the size that the comparison uses everywhere.
pub(crate) fn pool(url: &str) -> Result<Pool, Failure> {
    const SIZE: usize = 16;

    let mut config = deadpool_redis::Config::from_url(url);
    config.pool = Some(deadpool_redis::PoolConfig::new(SIZE));
    Ok(config.create_pool(Some(Runtime::Tokio1))?)
}

/// As the default of `Lease`.
const TTL_MS: &str = "30000";
const DAY_MS: &str = "86400000";

/// redis.io, "Distributed Locks with Redis": the release of a single instance.
static COMPARE_AND_DELETE: LazyLock<Script> = LazyLock::new(|| {
    Script::new("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end")
});

static TOKEN: LazyLock<(Script, Script)> = LazyLock::new(|| {
    (
        Script::new(include_str!("../../lock-redis/src/token/acquire.lua")),
        Script::new(include_str!("../../lock-redis/src/token/release.lua")),
    )
});

static REENTRANT: LazyLock<(Script, Script)> = LazyLock::new(|| {
    (
        Script::new(include_str!("../../lock-redis/src/reentrant/acquire.lua")),
        Script::new(include_str!("../../lock-redis/src/reentrant/release.lua")),
    )
});

/// As `lock-redis` does it: RESP3, no delay, no limit and no retries of the client's own, and room for 1,024 requests.
async fn multiplexed(url: &str) -> Result<ConnectionManager, Failure> {
    const QUEUE: usize = 1_024;

    let info = url.into_connection_info()?;
    let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let client = Client::open(info.set_redis_settings(redis).set_tcp_settings(tcp))?;
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE);
    Ok(ConnectionManager::new_with_config(client, config).await?)
}

fn evalsha(script: &Script, keys: &[&str], arguments: &[&str]) -> Cmd {
    let mut command = cmd("EVALSHA");
    command.arg(script.get_hash()).arg(keys.len()).arg(keys).arg(arguments);
    command
}

async fn ask<T: redis::FromRedisValue>(link: &Link, command: &Cmd) -> Result<T, Failure> {
    async fn on<T: redis::FromRedisValue>(
        connection: &mut (impl ConnectionLike + Send),
        command: &Cmd,
    ) -> Result<T, Failure> {
        Ok(command.query_async(connection).await?)
    }
    match link {
        Link::Multiplexed(manager) => on(&mut manager.clone(), command).await,
        Link::Pool(pool) => on(&mut pool.get().await?, command).await,
        Link::Quorum(_) | Link::Etcd(_) | Link::ZooKeeper(_) => Err("this floor does not speak to one Redis".into()),
    }
}
