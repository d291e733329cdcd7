//! Redis Cluster: which node has a key (redis.io, "Redis cluster specification").
//!
//! The redis crate's own cluster connection is not used, for three of its habits. It sends a request again after a lost
//! connection, so that a release whose reply was lost would answer "not held". It shares a connection between requests and
//! sharded subscriptions, and takes the message that a slot has moved away for the reply to a request: every reply after it
//! belongs to another. And while it learns the slots anew, a node that is silent holds up the requests to all.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lock_core::Moment;
use redis::{
    Arg, AsyncConnectionConfig, Client, Cmd, ConnectionInfo, FromRedisValue, Pipeline, RedisError, RedisResult,
    ServerError, Value,
};
use tokio::time::timeout;

use crate::address::{Address, client_at};
use crate::error::{Failure, server_code};
use crate::keys;
use crate::links::{Links, Server};
use crate::pinned::Pinned;
use crate::subscriptions::Subscriptions;
use crate::transport::{Listen, Request};

/// How often one request may be sent to another node: once is the rule, and a second time while nodes disagree.
const REDIRECTS: usize = 4;

/// The masters of a cluster, each with connections of our own.
pub(crate) struct Cluster {
    /// Where the masters are asked for at first, and when none of them answers.
    seeds: Vec<Address>,
    /// The settings of every node.
    settings: ConnectionInfo,
    limit: Duration,
    subscriptions: Arc<Subscriptions>,
    /// Whether the servers have channels that belong to slots (7.0).
    sharded: AtomicBool,
    state: Mutex<State>,
    /// Held by the one who learns the slots; the others wait for what it learns.
    learning: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    masters: Vec<Slots>,
    nodes: HashMap<Address, Arc<Node>>,
    /// Masters that may not be masters any more: whoever needs one of them learns the slots first.
    doubted: HashSet<Address>,
}

/// A range of slots and its master.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slots {
    first: u16,
    last: u16,
    master: Address,
}

struct Node {
    requests: Arc<Links>,
    /// Apart from the requests, because the server says unasked that a slot and its channels have moved away, and the client
    /// takes that for a reply.
    pushes: Links,
}

impl Cluster {
    pub(crate) fn new(seeds: &[ConnectionInfo], limit: Duration, subscriptions: Arc<Subscriptions>) -> Option<Self> {
        let addresses = seeds.iter().map(|seed| Address::of(seed.addr())).collect::<Option<Vec<_>>>()?;
        Some(Self {
            seeds: addresses,
            settings: seeds.first()?.clone(),
            limit,
            subscriptions,
            sharded: AtomicBool::new(false),
            state: Mutex::default(),
            learning: tokio::sync::Mutex::new(()),
        })
    }

    pub(crate) fn is_sharded(&self) -> bool {
        self.sharded.load(Ordering::Relaxed)
    }

    pub(crate) fn set_sharded(&self, sharded: bool) {
        self.sharded.store(sharded, Ordering::Relaxed);
    }

    pub(crate) async fn send<T: FromRedisValue>(&self, request: Request<'_>) -> Result<T, Failure> {
        let value = match request {
            Request::One(command) => self.command(command, slot_of(command)).await?,
            Request::Many(pipeline) => self.pipeline(pipeline).await?,
        };
        redis::from_redis_value(value).map_err(|error| Failure::Redis(error.into()))
    }

    /// Sends each to the node of its key, all at once: a pipeline is for one node, and a script for one slot.
    pub(crate) async fn send_each<T: FromRedisValue>(&self, commands: &[Cmd]) -> Vec<Result<T, Failure>> {
        let answers = join_all(commands.iter().map(|command| self.command(command, slot_of(command)))).await;
        let typed = |value| redis::from_redis_value(value).map_err(|error| Failure::Redis(RedisError::from(error)));
        answers.into_iter().map(|answer| answer.and_then(typed)).collect()
    }

    /// Those without a key go where the first key is.
    async fn pipeline(&self, pipeline: &Pipeline) -> Result<Value, Failure> {
        let first = pipeline.cmd_iter().find_map(slot_of);
        let answers = pipeline.cmd_iter().map(|command| self.command(command, slot_of(command).or(first)));
        let answers = join_all(answers).await.into_iter().map(|answer| match answer {
            Err(Failure::Redis(error)) => Ok(Value::ServerError(ServerError::try_from(error)?)),
            answer => answer,
        });
        answers.collect::<Result<_, _>>().map(Value::Array)
    }

    async fn command(&self, command: &Cmd, slot: Option<u16>) -> Result<Value, Failure> {
        let until = Moment::now().saturating_add(self.limit);
        let mut address = self.master_of(slot).await?;
        let mut asking = false;
        for _ in 0..REDIRECTS {
            let node = self.node(&address)?;
            let answer = if asking {
                node.ask(command, until.remaining()).await
            } else {
                node.requests.send(Request::One(command), until.remaining()).await
            };
            match answer {
                Err(Failure::Redis(error)) if error.redirect_node().is_some() => {
                    asking = server_code(&error) == Some("ASK");
                    if !asking {
                        self.doubt(&address);
                    }
                    address = address.redirected(&error).ok_or(Failure::Redis(error))?;
                }
                Err(failure) => {
                    if is_doubtful(&failure) {
                        self.doubt(&address);
                    }
                    return Err(match failure {
                        // Of which the way there may have taken a part.
                        Failure::Limit(_) => Failure::Limit(self.limit),
                        failure => failure,
                    });
                }
                answer => return answer,
            }
        }
        Err(Failure::Master(format!("its nodes disagree on slot {}", slot.unwrap_or_default())))
    }

    /// A connection to itself, to the node that has `key`.
    pub(crate) async fn pin(&self, key: &str) -> Result<Pinned, Failure> {
        let address = self.master_of(Some(keys::slot(key))).await?;
        self.node(&address)?.requests.pin(self.limit).await.inspect_err(|failure| {
            if is_doubtful(failure) {
                self.doubt(&address);
            }
        })
    }

    /// Notes that the node which has `key` may not have it any more, if the failure says so.
    pub(crate) fn failed(&self, key: &str, failure: &Failure) {
        if is_doubtful(failure)
            && let Some(address) = self.known_master(Some(keys::slot(key)))
        {
            self.doubt(&address);
        }
    }

    /// The masters, for what is to be asked of each.
    pub(crate) async fn masters(&self) -> Result<Vec<Address>, Failure> {
        self.learn().await?;
        let masters: HashSet<_> = self.state().masters.iter().map(|slots| slots.master.clone()).collect();
        Ok(masters.into_iter().collect())
    }

    pub(crate) async fn send_to<T: FromRedisValue + Send>(
        &self,
        address: &Address,
        command: &Cmd,
    ) -> Result<T, Failure> {
        self.node(address)?.requests.send(Request::One(command), self.limit).await
    }

    pub(crate) async fn listen(&self, listen: Listen, channels: &[&str]) -> Result<(), Failure> {
        let mut by_node = HashMap::<Address, Vec<&str>>::new();
        for channel in channels {
            by_node.entry(self.master_of(Some(keys::slot(channel))).await?).or_default().push(channel);
        }
        let listening = by_node.into_iter().map(|(address, channels)| async move {
            let answer = self.node(&address)?.listen(listen, channels, self.is_sharded(), self.limit).await;
            if let Err(failure) = &answer
                && is_doubtful(failure)
            {
                self.doubt(&address);
            }
            answer
        });
        join_all(listening).await.into_iter().collect()
    }

    /// The master of a slot, by what is known, or learnt now if that is in doubt; any master if no slot is given.
    async fn master_of(&self, slot: Option<u16>) -> Result<Address, Failure> {
        if let Some(master) = self.known_master(slot) {
            return Ok(master);
        }
        // Half of a request's time, so that something is left for the request.
        let limit = self.limit / 2;
        let learning = async {
            let _turn = self.learning.lock().await;
            // Another has learnt it meanwhile.
            if self.known_master(slot).is_some() { Ok(()) } else { self.learn().await }
        };
        // Boxed, so that a request whose node is known does not carry its size.
        match timeout(limit, Box::pin(learning)).await {
            Ok(learnt) => learnt?,
            Err(_elapsed) => return Err(Failure::Master(format!("no node told the slots within {limit:?}"))),
        }
        self.known_master(slot).ok_or_else(|| Failure::Master("nobody has this slot".to_owned()))
    }

    fn known_master(&self, slot: Option<u16>) -> Option<Address> {
        let state = self.state();
        let mut masters = state.masters.iter();
        let master = match slot {
            Some(slot) => masters.find(|slots| (slots.first..=slots.last).contains(&slot)),
            None => masters.find(|slots| !state.doubted.contains(&slots.master)),
        };
        master.map(|slots| slots.master.clone()).filter(|master| !state.doubted.contains(master))
    }

    /// Asks all nodes at once for the slots, so that one that is silent costs nothing, and believes the first that is not
    /// in doubt.
    async fn learn(&self) -> Result<(), Failure> {
        let (mut known, doubted) = {
            let state = self.state();
            (state.nodes.keys().cloned().collect::<HashSet<_>>(), state.doubted.clone())
        };
        known.extend(self.seeds.iter().cloned());
        let mut asked: FuturesUnordered<_> = known.iter().map(|address| self.ask_for_slots(address)).collect();
        let (mut doubtful, mut failed) = (None, None);
        while let Some((address, answer)) = asked.next().await {
            match answer {
                // One that has just been started, or reset.
                Ok(masters) if masters.is_empty() => {}
                Ok(masters) if doubted.contains(address) => doubtful = Some(masters),
                Ok(masters) => {
                    self.learnt(masters);
                    return Ok(());
                }
                Err(error) => failed = Some(error),
            }
        }
        match (doubtful, failed) {
            (Some(masters), _) => {
                self.learnt(masters);
                Ok(())
            }
            (None, Some(error)) => Err(Failure::Connect(error)),
            (None, None) => Err(Failure::Master("there is no node to ask".to_owned())),
        }
    }

    /// Over a connection of its own: that of the requests, left half made when another node has answered, would never be.
    async fn ask_for_slots<'a>(&self, address: &'a Address) -> (&'a Address, RedisResult<Vec<Slots>>) {
        let asking = async {
            let limit = Some(self.limit / 2);
            let config = AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(limit);
            let client = client_at(&self.settings, address)?;
            let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            let answer: Vec<Value> = redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
            Ok(answer.into_iter().filter_map(|range| slots(range, address)).collect())
        };
        (address, asking.await)
    }

    fn learnt(&self, masters: Vec<Slots>) {
        tracing::debug!(?masters, "the slots of the Redis Cluster");
        let gone: Vec<_> = {
            let state = &mut *self.state();
            state.doubted.clear();
            state.masters = masters;
            let kept: HashSet<_> =
                state.masters.iter().map(|slots| &slots.master).chain(&self.seeds).cloned().collect();
            state.nodes.extract_if(|address, _| !kept.contains(address)).collect()
        };
        // Outside the lock: its end wakes those who listen there.
        drop(gone);
    }

    fn doubt(&self, address: &Address) {
        self.state().doubted.insert(address.clone());
    }

    fn node(&self, address: &Address) -> Result<Arc<Node>, Failure> {
        let mut state = self.state();
        if let Some(node) = state.nodes.get(address) {
            return Ok(Arc::clone(node));
        }
        let client = client_at(&self.settings, address)?;
        let links = |client: Client, subscriptions| Links::new(Server::At(client), self.limit, subscriptions);
        let node = Arc::new(Node {
            requests: Arc::new(links(client.clone(), Arc::default())),
            pushes: links(client, Arc::clone(&self.subscriptions)),
        });
        state.nodes.insert(address.clone(), Arc::clone(&node));
        Ok(node)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    /// Sends a request for a slot that is on its way to this node.
    async fn ask(&self, command: &Cmd, limit: Duration) -> Result<Value, Failure> {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command.clone()).ignore_errors();
        let (_, answer): (Value, RedisResult<Value>) = self.requests.send(Request::Many(&pipeline), limit).await?;
        Ok(answer?)
    }

    async fn listen(&self, listen: Listen, channels: Vec<&str>, sharded: bool, limit: Duration) -> Result<(), Failure> {
        if !sharded {
            return self.pushes.listen(listen, channels, limit).await;
        }
        let name = match listen {
            Listen::To => "SSUBSCRIBE",
            Listen::NoMore => "SUNSUBSCRIBE",
        };
        // One command each, because one that names several slots is refused.
        let mut pipeline = Pipeline::with_capacity(channels.len());
        for channel in channels {
            pipeline.cmd(name).arg(channel);
        }
        let answers: Vec<RedisResult<Value>> = self.pushes.send(Request::Many(pipeline.ignore_errors()), limit).await?;
        match answers.into_iter().collect::<RedisResult<Vec<_>>>() {
            // Who has no slot any more has no subscriptions of it either.
            Err(error) if matches!(listen, Listen::NoMore) && error.redirect_node().is_some() => Ok(()),
            answers => Ok(answers.map(drop)?),
        }
    }
}

/// Whether the node may not be the master of the slot any more.
fn is_doubtful(failure: &Failure) -> bool {
    match failure {
        Failure::Limit(_) | Failure::Connect(_) => true,
        Failure::Redis(error) => {
            error.is_io_error()
                || error.redirect_node().is_some()
                || matches!(server_code(error), Some("READONLY" | "MASTERDOWN" | "CLUSTERDOWN"))
        }
        Failure::Pool(_) | Failure::Master(_) | Failure::Replicas(_) | Failure::Undone(_) => false,
    }
}

/// The slot of the key that a command of ours is about, or of its channel; none if it is about no key.
fn slot_of(command: &Cmd) -> Option<u16> {
    let argument = |at| match command.args_iter().nth(at) {
        Some(Arg::Simple(argument)) => std::str::from_utf8(argument).ok(),
        _ => None,
    };
    let key = match argument(0)? {
        "EVAL" | "EVALSHA" if argument(2)? == "0" => return None,
        "EVAL" | "EVALSHA" => argument(3)?,
        "INFO" | "SCRIPT" | "SCAN" | "PUBSUB" | "CLUSTER" | "ROLE" => return None,
        _ => argument(1)?,
    };
    Some(keys::slot(key))
}

/// One line of CLUSTER SLOTS: the first slot, the last, the master (its host, its port, more), and its replicas.
fn slots(range: Value, told_by: &Address) -> Option<Slots> {
    let (first, last, master): (u16, u16, Vec<Value>) = {
        let Value::Array(mut parts) = range else { return None };
        parts.truncate(3);
        redis::from_redis_value(Value::Array(parts)).ok()?
    };
    let mut master = master.into_iter();
    let host = redis::from_redis_value::<Option<String>>(master.next()?).ok()?;
    let port = redis::from_redis_value(master.next()?).ok()?;
    // A node that does not know its own name leaves it out: it is the one that was asked.
    let host = host.filter(|host| !matches!(&**host, "" | "?")).unwrap_or_else(|| told_by.host.clone());
    Some(Slots { first, last, master: Address { host, port } })
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("seeds", &self.seeds).field("masters", &self.state().masters).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_goes_where_its_key_is() {
        let command = |words: &[&str]| redis::cmd(words[0]).arg(&words[1..]).to_owned();
        for (words, key) in [
            (&["EVALSHA", "abc", "2", "a", "b", "c"][..], Some("a")),
            (&["EVAL", "return 1", "0"], None),
            (&["GET", "a"], Some("a")),
            (&["SPUBLISH", "x:{a}", "0"], Some("a")),
            (&["SCAN", "0", "MATCH", "a"], None),
            (&["PUBSUB", "SHARDNUMSUB", "a"], None),
            (&["INFO", "server"], None),
        ] {
            assert_eq!(slot_of(&command(words)), key.map(keys::slot), "{words:?}");
        }
    }

    #[test]
    fn the_slots_of_each_server_version_are_understood() {
        let told_by = Address { host: "seed".into(), port: 1 };
        let range = |text: &str| slots(redis::parse_redis_value(text.as_bytes()).unwrap(), &told_by);
        let expected =
            |host: &str| Some(Slots { first: 0, last: 5, master: Address { host: host.into(), port: 7000 } });
        let seven = "*3\r\n:0\r\n:5\r\n*4\r\n$2\r\nh1\r\n:7000\r\n$2\r\nid\r\n*2\r\n$8\r\nhostname\r\n$1\r\nx\r\n";
        assert_eq!(range(seven), expected("h1"));
        assert_eq!(range("*3\r\n:0\r\n:5\r\n*2\r\n$2\r\nh1\r\n:7000\r\n"), expected("h1"));
        for unknown in ["$-1", "$0\r\n", "$1\r\n?"] {
            assert_eq!(range(&format!("*3\r\n:0\r\n:5\r\n*2\r\n{unknown}\r\n:7000\r\n")), expected("seed"));
        }
        assert_eq!(range("*1\r\n:0\r\n"), None);
        assert_eq!(range("+OK\r\n"), None);
    }
}
