//! Our own driver: holds our locks as it is told on standard input.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::ConnectOptions;
use lock_core::{Backend, Lease, LockGuard, Locks, Options, Owner, Release, Result};
use lock_etcd::Etcd;
use lock_redis::{Connection, Reentrant, Token, TokenOptions};
use lock_zookeeper::{Naming, ZooKeeper};
use tokio::runtime::Runtime;
use zookeeper_client::Client;

/// Holds locks of `strategy` at `address`, with renewed leases of `lease` ms, until standard input ends.
pub(crate) fn drive(strategy: &str, address: &str, lease: u64) {
    let runtime = Runtime::new().unwrap();
    let lease = Duration::from_millis(lease);
    let backend = runtime.block_on(connect(strategy, address, lease)).unwrap();
    let locks = Locks::with_options(backend, Options::new().with_lease(Lease::renewed(lease)));
    let mut holder = Holder { locks, owner: None, held: HashMap::new() };
    println!("ready");

    for line in io::stdin().lines() {
        let line = line.unwrap();
        let (command, name) = line.split_once(' ').unwrap();
        match runtime.block_on(holder.answer(command, name)) {
            Ok(answer) => println!("{answer}"),
            Err(error) => println!("error {error}"),
        }
    }
}

async fn connect(strategy: &str, address: &str, lease: Duration) -> Result<Arc<dyn Backend>> {
    let redis = async || Connection::open(address, lock_redis::Config::new()).await;
    let etcd = |config| Etcd::connect_with([address], ConnectOptions::new(), config);
    let zookeeper = async |naming| {
        let connector = Client::connector().with_session_timeout(lease);
        ZooKeeper::from_connector(connector, address, lock_zookeeper::Config::new().with_naming(naming)).await
    };
    Ok(match strategy {
        "reentrant" => Arc::new(Reentrant::new(redis().await?).await?),
        "token" => Arc::new(Token::new(redis().await?, TokenOptions::new()).await?),
        "token-unprefixed" => Arc::new(Token::new(redis().await?, TokenOptions::new().with_prefix("")).await?),
        "etcd" => Arc::new(etcd(lock_etcd::Config::new())?),
        "etcd-unprefixed" => Arc::new(etcd(lock_etcd::Config::new().with_prefix(""))?),
        "zookeeper-curator" => Arc::new(zookeeper(Naming::Curator).await?),
        "zookeeper-kazoo" => Arc::new(zookeeper(Naming::Kazoo).await?),
        _ => panic!("there is no strategy `{strategy}`"),
    })
}

struct Holder {
    locks: Locks,
    owner: Option<Owner>,
    held: HashMap<String, Vec<LockGuard>>,
}

impl Holder {
    async fn answer(&mut self, command: &str, name: &str) -> Result<String> {
        if command == "owner" {
            let bits = u128::from_str_radix(&name.replace('-', ""), 16).unwrap();
            self.owner = Some(Owner::from_bits(bits));
            return Ok("ok".to_owned());
        }
        let mut lock = self.locks.lock(name)?;
        if let Some(owner) = &self.owner {
            lock = lock.owner(owner);
        }
        let holds = self.held.entry(name.to_owned()).or_default();
        let answer = match command {
            "try" => match lock.try_acquire().await? {
                Some(guard) => {
                    holds.push(guard);
                    "ok"
                }
                None => "busy",
            },
            "acquire" => {
                holds.push(lock.acquire().await?);
                "ok"
            }
            "release" => match holds.pop().unwrap().release().await? {
                Release::Released => "ok",
                Release::NotHeld => "lost",
            },
            _ => panic!("there is no command `{command}`"),
        };
        Ok(answer.to_owned())
    }
}
