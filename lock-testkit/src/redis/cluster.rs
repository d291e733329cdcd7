use std::ops::Deref;
use std::time::Duration;
use std::{fmt, io, thread};

use lock_core::Moment;
use redis::RedisResult;

use super::{RedisServer, RedisServerBuilder, logs, start_all};
use crate::port::Port;

/// How many slots a Redis Cluster has.
const SLOTS: u16 = 16_384;

const MASTERS: u16 = 3;

/// How long a cluster may take to agree with itself; it needs two seconds.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// A private Redis Cluster: three masters, a replica of each, and every slot assigned. It is made of [`RedisServer`]s, so a
/// node can be killed, stopped and restarted; a restarted one comes back as a member.
///
/// Nodes 0 to 2 start as masters, with a third of the slots each, and 3 to 5 as their replicas, in this order. A master
/// that does not answer for 2 s is replaced by its replica. It needs Redis 7.
///
/// When a panic drops it, as that of an assertion, it prints what the nodes have logged.
///
/// # Examples
///
/// ```
/// use lock_testkit::RedisCluster;
///
/// let cluster = RedisCluster::start()?;
/// let slot = cluster.slot("a")?;
/// cluster[cluster.master_of(slot)?].command::<()>(&["SET", "a", "1"])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RedisCluster(Vec<RedisServer>);

impl RedisCluster {
    /// Starts the nodes at the same time, and returns when each says that the cluster is ok and each replica has its data:
    /// after about two seconds.
    ///
    /// # Errors
    ///
    /// As for [`RedisServer::start`]; `TimedOut` if the nodes do not agree within a minute.
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// The same with options.
    pub fn builder() -> RedisClusterBuilder {
        RedisClusterBuilder(
            RedisServer::builder()
                .in_memory()
                .config("cluster-enabled", "yes")
                .config("cluster-node-timeout", "2000")
                .config("cluster-replica-validity-factor", "0")
                .config("repl-diskless-sync-delay", "0"),
        )
    }

    /// The URL of each node: with its password if it has one, and of its TLS port if it has that.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.iter().map(RedisServer::client_url).collect()
    }

    /// The slot of a key.
    ///
    /// # Errors
    ///
    /// If no node answers.
    pub fn slot(&self, key: &str) -> RedisResult<u16> {
        self.ask(&["CLUSTER", "KEYSLOT", key])
    }

    /// Which node is the master of a slot now, by what the first node that answers believes.
    ///
    /// # Errors
    ///
    /// If no node answers, or none is known to have the slot.
    pub fn master_of(&self, slot: u16) -> RedisResult<usize> {
        let nodes: String = self.ask(&["CLUSTER", "NODES"])?;
        let master = nodes.lines().find(|line| has_slot(line, slot)).and_then(|line| line.split(' ').nth(1));
        let place =
            master.and_then(|master| self.iter().position(|node| master.starts_with(&format!("{}@", node.addr()))));
        Ok(place.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("nobody has slot {slot}")))?)
    }

    /// Moves a slot to another master while it is in use, key by key, as `redis-cli --cluster reshard` does: between its
    /// beginning and its end the old master answers ASK for keys that have gone, and afterwards MOVED. It returns when every
    /// node that runs knows the new master, which they tell each other in about a second: a replica that took over before it
    /// knew would not claim the slot, and the cluster would stay down.
    ///
    /// # Errors
    ///
    /// If a node refuses, or does not answer; `TimedOut` if the nodes do not agree within a minute.
    pub fn move_slot(&self, slot: u16, to: usize) -> RedisResult<()> {
        let from = self.master_of(slot)?;
        let (source, target) = (&self[from], &self[to]);
        let (source_id, target_id) = (id(source)?, id(target)?);
        let (number, slot) = (slot, slot.to_string());
        target.command::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id])?;
        source.command::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id])?;
        loop {
            let keys: Vec<String> = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"])?;
            if keys.is_empty() {
                break;
            }
            let port = target.peer_port().to_string();
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000"];
            if let Some(password) = &target.password {
                migrate.extend(["AUTH", password]);
            }
            migrate.push("KEYS");
            migrate.extend(keys.iter().map(String::as_str));
            source.command::<()>(&migrate)?;
        }
        // The target first, so that the slot never belongs to nobody.
        for node in [target, source] {
            node.command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id])?;
        }
        self.settle("every node knows the slot's new master", |node| {
            let nodes = || node.command::<String>(&["CLUSTER", "NODES"]);
            Ok(!node.is_awake() || nodes()?.lines().any(|line| line.starts_with(&target_id) && has_slot(line, number)))
        })?;
        Ok(())
    }

    /// Gives the masters their slots, makes the nodes known to each other, and gives each master its replica.
    fn assign(&self) -> RedisResult<()> {
        let (masters, replicas) = self.split_at(usize::from(MASTERS));
        for (number, master) in (0..).zip(masters) {
            let [first, next] = [number, number + 1].map(|number: u16| number * (SLOTS / MASTERS + 1));
            let last = next.min(SLOTS) - 1;
            master.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()])?;
            // Distinct from the start, so that they need not find out that they collide.
            master.command::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
        }
        for node in &self[1..] {
            let bus: Vec<String> = node.command(&["CONFIG", "GET", "cluster-port"])?;
            self[0].command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &node.peer_port().to_string(), &bus[1]])?;
        }
        self.settle("every node knows every other", |node| {
            let nodes = node.command::<String>(&["CLUSTER", "NODES"])?;
            Ok(nodes.lines().filter(|line| !line.contains("handshake")).count() == self.len())
        })?;
        for (master, replica) in masters.iter().zip(replicas) {
            replica.command::<()>(&["CLUSTER", "REPLICATE", &id(master)?])?;
        }
        self.settle("every replica has its master's data, and is known as a replica", |node| {
            let nodes = node.command::<String>(&["CLUSTER", "NODES"])?;
            let replication = node.command::<String>(&["INFO", "replication"])?;
            let linked = replication.contains("role:master") || replication.contains("master_link_status:up");
            Ok(linked && nodes.lines().filter(|line| line.contains("slave")).count() == replicas.len())
        })?;
        Ok(())
    }

    /// Waits until `condition` holds on every node.
    fn settle(&self, what: &str, condition: impl Fn(&RedisServer) -> RedisResult<bool>) -> io::Result<()> {
        let limit = Moment::now().saturating_add(SETTLE_LIMIT);
        for node in self.iter() {
            while !condition(node).map_err(io::Error::other)? {
                if limit.remaining().is_zero() {
                    let says = format!("not within {SETTLE_LIMIT:?}: {what}; the log of {node:?}:\n{}", node.log()?);
                    return Err(io::Error::new(io::ErrorKind::TimedOut, says));
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// Asks the nodes in turn until one answers. One that is stopped is not asked: it would cost ten seconds.
    fn ask<T: redis::FromRedisValue>(&self, arguments: &[&str]) -> RedisResult<T> {
        let mut last = None;
        for node in self.iter().filter(|node| node.is_awake()) {
            match node.command(arguments) {
                Ok(answer) => return Ok(answer),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "no node runs").into()))
    }
}

/// Whether this line of CLUSTER NODES gives its node the slot. The ranges are the words behind the eighth; those in
/// brackets are on their way.
fn has_slot(line: &str, slot: u16) -> bool {
    line.split(' ').skip(8).any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse(), last.parse()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
    })
}

fn id(node: &RedisServer) -> RedisResult<String> {
    node.command(&["CLUSTER", "MYID"])
}

impl Deref for RedisCluster {
    type Target = [RedisServer];

    fn deref(&self) -> &[RedisServer] {
        &self.0
    }
}

/// Options of a [`RedisCluster`].
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing until `start` is called"]
pub struct RedisClusterBuilder(RedisServerBuilder);

impl RedisClusterBuilder {
    /// Gives the default user of every node a password; see [`RedisServerBuilder::password`].
    pub fn password(self, password: &str) -> Self {
        Self(self.0.password(password).config("masterauth", password))
    }

    /// Lets the nodes talk TLS to each other and to clients, with this certificate and its key, both in PEM. Behind the
    /// certificate stands that of its authority, because they check each other's.
    pub fn tls(self, certificate: &str, key: &str) -> Self {
        Self(self.0.tls(certificate, key).config("tls-cluster", "yes").config("tls-replication", "yes"))
    }

    /// Starts the nodes.
    ///
    /// # Errors
    ///
    /// As for [`RedisCluster::start`].
    pub fn start(self) -> io::Result<RedisCluster> {
        // Its default is the port plus 10,000, among those that the kernel gives to clients.
        let nodes = (0..2 * MASTERS).map(|_| Ok(self.0.clone().cluster_port(Port::free()?)));
        let cluster = RedisCluster(start_all(nodes.collect::<io::Result<Vec<_>>>()?)?);
        cluster.assign().map_err(io::Error::other)?;
        cluster.settle("every node answers that the cluster is ok", |node| {
            Ok(node.command::<String>(&["CLUSTER", "INFO"])?.contains("cluster_state:ok"))
        })?;
        Ok(cluster)
    }
}

impl Drop for RedisCluster {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", logs(self.iter()));
        }
    }
}

impl fmt::Debug for RedisCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisCluster").field(&self.0).finish()
    }
}
