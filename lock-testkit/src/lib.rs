//! For whoever writes a lock, or builds on one, and wants to see it break: private servers, faults on demand, a recorder
//! with its checks, and a conformance suite for backends of [`lock_core`].
//!
//! Each piece works alone, with any client and any lock:
//!
//! | piece | what it is for |
//! | --- | --- |
//! | [`RedisServer`] | a redis-server of one's own, to be killed, stopped and restarted |
//! | [`RedisNodes`] | several of them that know nothing of each other |
//! | [`RedisSentinel`], [`RedisCluster`] | servers of one's own that fail over, or share the keys between them |
//! | [`EtcdCluster`] | the same for etcd, with one member or several |
//! | [`ZooKeeperEnsemble`] | the same for ZooKeeper, with one member or several |
//! | [`fault::Proxy`] | a network that holds, loses, cuts and delays requests and replies, picked by what they say: of Redis, etcd and ZooKeeper |
//! | [`history::History`] | what happened, by one clock, and whether two held at once, an update was lost, a token fell |
//! | [`Process`] | a child process that is paused or killed, and never outlives the test |
//! | [`TempFolder`] | a folder that is removed with its owner, also when that is killed |
//! | [`simulation`] | drawn worlds of bad clocks and networks, played over thousands of seeds without waiting |
//! | [`suite`] | every line of the contract as a trial, against a backend on its real store |
//!
//! The feature `tls` adds `Certificates`, for private servers that speak TLS.
//!
//! What is done to a server (killed, stopped, told to forget) is an event of `tracing` with the target `lock_testkit::act` and the
//! server's `port`, so that it stands in a log between what the program under test says.
//!
//! # Examples
//!
//! A lock that is released by a blind DEL, whose DEL is held up in the network until another has the lock:
//!
//! ```
//! use std::time::Duration;
//!
//! use lock_core::{Moment, Release};
//! use lock_testkit::RedisServer;
//! use lock_testkit::fault::{Proxy, Request};
//! use lock_testkit::history::{History, Observable};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = RedisServer::start()?;
//! let proxy = Proxy::start(server.addr())?;
//! let history = History::new();
//! let (a, b) = (history.actor("a"), history.actor("b"));
//!
//! // A's requests take the proxy, B's the short way.
//! let mut a_redis = redis::Client::open(server.url_at(proxy.addr()))?.get_multiplexed_async_connection().await?;
//! let set = |ttl: &'static str| redis::cmd("SET").arg("lock").arg("x").arg("NX").arg("PX").arg(ttl).to_owned();
//! let deadline = |ttl| Moment::now().saturating_add(Duration::from_millis(ttl));
//!
//! let (attempt, until) = (a.acquiring("lock"), deadline(30));
//! set("30").exec_async(&mut a_redis).await?;
//! let a_hold = attempt.granted(None, until);
//! a_hold.releasing();
//! let held = proxy.when(Request::command("DEL")).hold_request();
//! let del = tokio::spawn(async move { redis::cmd("DEL").arg("lock").query_async::<u64>(&mut a_redis).await });
//! held.seen().await;
//!
//! let (attempt, until) = loop {
//!     let (attempt, until) = (b.acquiring("lock"), deadline(60_000));
//!     match server.command::<Option<String>>(&["SET", "lock", "x", "NX", "PX", "60000"])? {
//!         Some(_) => break (attempt, until),
//!         None => attempt.busy(),
//!     }
//!     tokio::time::sleep(Duration::from_millis(2)).await;
//! };
//! let b_hold = attempt.granted(None, until);
//! held.release();
//! assert_eq!(del.await??, 1);
//! a_hold.released(Release::Released);
//! if server.command::<u64>(&["EXISTS", "lock"])? == 0 {
//!     b_hold.renewal_lost();
//! }
//!
//! let events = history.events();
//! assert!(Observable::InLeaseOverlap.find(&events).is_empty());
//! assert_eq!(Observable::Stolen.find(&events).len(), 1);
//! # Ok(())
//! # }
//! ```

mod act;
#[cfg(feature = "tls")]
mod certificates;
mod etcd;
pub mod fault;
mod folder;
pub mod history;
mod port;
mod process;
mod program;
mod redis;
mod resp;
pub mod simulation;
pub mod suite;
mod zookeeper;

#[cfg(feature = "tls")]
pub use self::certificates::Certificates;
pub use self::etcd::{EtcdCluster, EtcdClusterBuilder, EtcdMember};
pub use self::redis::{
    Monitor, Monitored, RedisCluster, RedisClusterBuilder, RedisNodes, RedisSentinel, RedisSentinelBuilder,
    RedisServer, RedisServerBuilder,
};
pub use self::zookeeper::{ZooKeeperEnsemble, ZooKeeperEnsembleBuilder};
pub use folder::TempFolder;
pub use process::Process;
