//! Locks in a Redis Cluster: every slot, moved slots, and a master that dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::{Backend, Effect, ErrorKind, Lease, Locks, LossReason, Options, Release, Renew, Stop, WakeUp};
use lock_redis::{Config, Connection, Reentrant, ReentrantOptions, Token, TokenOptions, Unlock};
use lock_testkit::{RedisCluster, RedisServer};

use crate::ground::{claim, key_of, millis, soon, take, until};

/// Enough for a request on a busy machine; a node that is silent costs its own locks as much.
const LIMIT: Duration = Duration::from_secs(5);

async fn connect(cluster: &RedisCluster) -> Connection {
    Connection::open_cluster(&cluster.urls(), Config::new().with_request_limit(LIMIT)).await.unwrap()
}

async fn token(cluster: &RedisCluster) -> Arc<dyn Backend> {
    Arc::new(Token::new(connect(cluster).await, TokenOptions::new()).await.unwrap())
}

async fn both(cluster: &RedisCluster) -> [Arc<dyn Backend>; 2] {
    [token(cluster).await, Arc::new(Reentrant::new(connect(cluster).await).await.unwrap())]
}

/// Which node is the master of a lock.
fn place(cluster: &RedisCluster, backend: &dyn Backend, name: &str) -> usize {
    cluster.master_of(cluster.slot(&key_of(backend, name)).unwrap()).unwrap()
}

/// How many listen at this node on the channel of a token lock.
fn listeners(node: &RedisServer, name: &str) -> u64 {
    let channel = format!("hasp-released:{{hasp:{name}}}");
    node.command::<(String, u64)>(&["PUBSUB", "SHARDNUMSUB", &channel]).unwrap().1
}

/// Releases, and again while the cluster is being changed, as the driver would.
async fn release(backend: &dyn Backend, grant: &lock_core::Grant) -> Release {
    let releasing = async {
        loop {
            match backend.release(grant).await {
                Ok(release) => break release,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
    };
    soon(releasing).await
}

#[tokio::test]
async fn a_batch_of_renewals_crosses_all_slots() {
    let cluster = RedisCluster::start().unwrap();
    for backend in both(&cluster).await {
        let mut grants = Vec::new();
        for number in 0..300 {
            grants.push(take(&*backend, &number.to_string(), millis(60_000)).await);
        }
        let held = backend.list("").await.unwrap();
        assert_eq!(held.len(), 300, "all masters are asked");
        assert_eq!(backend.release(&grants[7]).await.unwrap(), Release::Released);
        for node in cluster.iter() {
            node.command::<()>(&["SCRIPT", "FLUSH"]).unwrap();
        }
        let batch: Vec<_> = grants.iter().map(|grant| Renew::new(grant, millis(90_000))).collect();
        for (number, answer) in backend.renew(&batch).await.into_iter().enumerate() {
            if number == 7 {
                assert_eq!(answer.unwrap_err().kind(), ErrorKind::Lost);
                continue;
            }
            answer.unwrap();
            let name = number.to_string();
            let node = &cluster[place(&cluster, &*backend, &name)];
            assert!(node.command::<i64>(&["PTTL", &key_of(&*backend, &name)]).unwrap() > 60_000, "{number}");
        }
        for (_, grant) in grants.iter().enumerate().filter(|(number, _)| *number != 7) {
            assert_eq!(backend.release(grant).await.unwrap(), Release::Released);
        }
        assert!(backend.list("").await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn waiters_listen_at_the_node_of_their_slot_only_and_are_woken() {
    let cluster = RedisCluster::start().unwrap();
    let (holder, waiting) = (token(&cluster).await, token(&cluster).await);
    assert_eq!(waiting.guarantees().wake_up, WakeUp::Push);
    for name in ["a", "b", "c", "d"] {
        let grant = take(&*holder, name, millis(300_000)).await;
        let waiter = {
            let waiting = Arc::clone(&waiting);
            tokio::spawn(async move { waiting.acquire(&claim(name, millis(5_000)), &Stop::new()).await })
        };
        let at = place(&cluster, &*holder, name);
        until("it listens", || listeners(&cluster[at], name) == 1).await;
        assert_eq!(holder.inspect(&grant.claim.key).await.unwrap().waiters, Some(1));
        assert_eq!(release(&*holder, &grant).await, Release::Released);
        let grant = soon(waiter).await.unwrap().unwrap().expect("it was not stopped");
        assert_eq!(release(&*waiting, &grant).await, Release::Released);
        until("it has left", || listeners(&cluster[at], name) == 0).await;
    }
}

/// As on servers before 7.0: without INFO nobody can tell that these are newer.
#[tokio::test]
async fn without_sharded_channels_plain_ones_wake() {
    let cluster = RedisCluster::start().unwrap();
    for node in cluster.iter() {
        node.command::<()>(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-info"]).unwrap();
    }
    // One node is enough to find the others.
    let url = format!("redis://app:secret@{}", cluster[1].addr());
    let connection = Connection::open_cluster(&[url], Config::new().with_request_limit(LIMIT)).await.unwrap();
    let backend: Arc<dyn Backend> = Arc::new(Token::new(connection, TokenOptions::new()).await.unwrap());
    for name in ["a", "b", "c", "d"] {
        let grant = take(&*backend, name, millis(300_000)).await;
        let waiter = {
            let backend = Arc::clone(&backend);
            tokio::spawn(async move { backend.acquire(&claim(name, millis(5_000)), &Stop::new()).await })
        };
        let node = &cluster[place(&cluster, &*backend, name)];
        let channel = format!("hasp-released:{{hasp:{name}}}");
        let plain = ["PUBSUB", "NUMSUB", &channel];
        until("it listens", || node.command::<(String, u64)>(&plain).unwrap().1 == 1).await;
        assert_eq!(listeners(node, name), 0);
        assert_eq!(backend.inspect(&grant.claim.key).await.unwrap().waiters, Some(1));
        assert_eq!(release(&*backend, &grant).await, Release::Released);
        let grant = soon(waiter).await.unwrap().unwrap().expect("it was not stopped");
        assert_eq!(release(&*backend, &grant).await, Release::Released);
    }
}

#[test]
fn its_connections_outlive_the_runtime_that_they_were_built_on() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let cluster = RedisCluster::start().unwrap();
    let (first, second) = (runtime(), runtime());
    let backend = first.block_on(token(&cluster));
    let grant = first.block_on(take(&*backend, "a", millis(300_000)));
    first.block_on(async {
        let (claim, stop) = (claim("a", millis(5_000)), Stop::new());
        assert!(tokio::time::timeout(millis(100), backend.acquire(&claim, &stop)).await.is_err());
    });
    drop(first);
    second.block_on(async {
        let waiting = Arc::clone(&backend);
        let waiter = tokio::spawn(async move { waiting.acquire(&claim("a", millis(5_000)), &Stop::new()).await });
        let node = &cluster[place(&cluster, &*backend, "a")];
        until("it listens", || listeners(node, "a") == 1).await;
        assert_eq!(release(&*backend, &grant).await, Release::Released);
        assert!(soon(waiter).await.unwrap().unwrap().is_some());
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_follows_its_slot() {
    let cluster = RedisCluster::start().unwrap();
    let (holder, waiting) = (token(&cluster).await, token(&cluster).await);
    let grant = take(&*holder, "a", millis(300_000)).await;
    let waiter = {
        let waiting = Arc::clone(&waiting);
        tokio::spawn(async move {
            loop {
                // The driver, too, would try again.
                if let Ok(Some(grant)) = waiting.acquire(&claim("a", millis(5_000)), &Stop::new()).await {
                    break grant;
                }
            }
        })
    };
    let from = place(&cluster, &*holder, "a");
    until("it listens", || listeners(&cluster[from], "a") == 1).await;
    let to = (from + 1) % 3;
    cluster.move_slot(cluster.slot("hasp:a").unwrap(), to).unwrap();
    until("it listens at the new node", || listeners(&cluster[to], "a") == 1).await;
    assert_eq!(release(&*holder, &grant).await, Release::Released);
    soon(waiter).await.unwrap();
}

/// The keys of a lock may be on their way one by one: its requests are asked of the new node, or refused for now.
#[tokio::test]
async fn a_lock_of_a_slot_that_is_on_its_way_is_found() {
    let cluster = RedisCluster::start().unwrap();
    for backend in both(&cluster).await {
        let grant = take(&*backend, "a", millis(60_000)).await;
        let slot = cluster.slot(&key_of(&*backend, "a")).unwrap();
        let from = cluster.master_of(slot).unwrap();
        let to = (from + 1) % 3;
        let id = |node: usize| cluster[node].command::<String>(&["CLUSTER", "MYID"]).unwrap();
        let (slot_text, port) = (slot.to_string(), cluster[to].port().to_string());
        cluster[to].command::<()>(&["CLUSTER", "SETSLOT", &slot_text, "IMPORTING", &id(from)]).unwrap();
        cluster[from].command::<()>(&["CLUSTER", "SETSLOT", &slot_text, "MIGRATING", &id(to)]).unwrap();
        let keys: Vec<String> = cluster[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot_text, "10"]).unwrap();
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        migrate.extend(keys.iter().map(String::as_str));
        cluster[from].command::<()>(&migrate).unwrap();

        assert!(backend.try_acquire(&claim("a", millis(5_000))).await.unwrap().is_none());
        backend.renew(&[Renew::new(&grant, millis(90_000))]).await.remove(0).unwrap();
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
        // Of the keys that a new hold needs, some are there and some are not: Redis refuses that until the slot has moved.
        let error = backend.try_acquire(&claim("a", millis(5_000))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
        for node in [to, from] {
            cluster[node].command::<()>(&["CLUSTER", "SETSLOT", &slot_text, "NODE", &id(to)]).unwrap();
        }
        let grant = take(&*backend, "a", millis(60_000)).await;
        assert!(backend.try_acquire(&claim("a", millis(5_000))).await.unwrap().is_none());
        assert_eq!(release(&*backend, &grant).await, Release::Released);
    }
}

/// 50 locks are taken, held, renewed and given back all the while; each hold ends released, or lost on time, and at the end
/// each lock can be had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_locks_go_on_while_slots_move_and_a_master_dies() {
    let cluster = RedisCluster::start().unwrap();
    let ttl = millis(4_000);
    let options = Options::new().with_lease(Lease::renewed(ttl)).with_unavailable_after(millis(60_000));
    let locks = Locks::with_options(token(&cluster).await, options);
    let stop = Arc::new(AtomicBool::new(false));
    let held = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..50)
        .map(|number| {
            let (locks, stop, held) = (locks.clone(), Arc::clone(&stop), Arc::clone(&held));
            tokio::spawn(async move {
                let lock = locks.lock(format!("lock {number}")).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock.acquire().await.unwrap();
                    tokio::select! {
                        reason = guard.lost() => {
                            assert!(reason == LossReason::NotHeld || guard.remaining().is_zero(), "{reason:?}");
                        }
                        () = tokio::time::sleep(millis(300)) => {
                            held.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    // Released, not held any more, or the keeper goes on trying: all are an end.
                    let _end = guard.release().await;
                }
            })
        })
        .collect();
    until("all have begun", || held.load(Ordering::Relaxed) >= 50).await;
    for number in 0..6 {
        let slot = cluster.slot(&format!("hasp:lock {number}")).unwrap();
        let to = (cluster.master_of(slot).unwrap() + 1) % 3;
        cluster.move_slot(slot, to).unwrap();
    }
    let before = held.load(Ordering::Relaxed);
    until("they go on", || held.load(Ordering::Relaxed) >= before + 100).await;
    cluster[1].kill().unwrap();
    until("its replica is the master", || {
        cluster[4].command::<Vec<redis::Value>>(&["ROLE"]).is_ok_and(|role| format!("{role:?}").contains("master"))
    })
    .await;
    let before = held.load(Ordering::Relaxed);
    until("they go on", || held.load(Ordering::Relaxed) >= before + 200).await;
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        soon(worker).await.unwrap();
    }
    // None is stuck: every one can be had by another process, at the latest when its lease is over.
    let other = Locks::with_options(token(&cluster).await, Options::new().with_unavailable_after(millis(60_000)));
    for number in 0..50 {
        let guard = soon(other.lock(format!("lock {number}")).unwrap().acquire()).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    soon(locks.shutdown()).await.unwrap();
}

/// A master that is silent costs the locks of other masters nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_master_holds_up_its_own_locks_only_and_is_replaced() {
    let cluster = RedisCluster::start().unwrap();
    let backend = token(&cluster).await;
    let name_at = |node: usize| (0..).map(|n| format!("{n}")).find(|name| place(&cluster, &*backend, name) == node);
    let [here, there] = [0, 1].map(|node| name_at(node).unwrap());
    let grant = take(&*backend, &here, millis(60_000)).await;
    until("the replica has it", || cluster[3].command::<u64>(&["DBSIZE"]).unwrap() >= 2).await;
    cluster[0].stop().unwrap();
    let error = backend.try_acquire(&claim(&here, millis(5_000))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{error}");
    for _ in 0..20 {
        let grant = take(&*backend, &there, millis(60_000)).await;
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    }
    // Its replica has the lock, and is asked as soon as it is the master.
    assert_eq!(release(&*backend, &grant).await, Release::Released);
    cluster[0].cont().unwrap();
}

/// A master that answers nothing is in doubt at once, and the others are asked before the next request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_without_an_answer_is_enough_to_ask_who_the_master_is_now() {
    let cluster = RedisCluster::start().unwrap();
    let backend = token(&cluster).await;
    let name = (0..).map(|n| format!("{n}")).find(|name| place(&cluster, &*backend, name) == 0).unwrap();
    let grant = take(&*backend, &name, millis(60_000)).await;
    assert_eq!(release(&*backend, &grant).await, Release::Released);
    cluster[0].stop().unwrap();
    cluster[3].command::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]).unwrap();
    let slot = cluster.slot(&format!("hasp:{name}")).unwrap();
    let knows = |node: &RedisServer| {
        let slots = node.command::<Vec<(u16, u16, Vec<redis::Value>)>>(&["CLUSTER", "SLOTS"]).unwrap();
        let here = slots.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
        here.is_some_and(|(_, _, master)| master[1] == redis::Value::Int(cluster[3].port().into()))
    };
    until("the others know", || cluster[1..].iter().all(knows)).await;
    let error = backend.try_acquire(&claim(&name, millis(60_000))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{error}");
    assert!(error.to_string().contains("no answer within 5s"), "{error}");
    assert!(backend.try_acquire(&claim(&name, millis(60_000))).await.unwrap().is_some());
    cluster[0].cont().unwrap();
}

/// Connections to a node that no slot leads to any more are closed: else they would pile up over the failovers of a long life.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_no_master_any_more_is_left() {
    let cluster = RedisCluster::start().unwrap();
    // Node 1 alone was named; that is where the slots may always be asked for.
    let config = Config::new().with_request_limit(LIMIT);
    let connection = Connection::open_cluster(&[cluster[1].url()], config).await.unwrap();
    let backend = Token::new(connection, TokenOptions::new()).await.unwrap();
    let name = (0..).map(|n| format!("{n}")).find(|name| place(&cluster, &backend, name) == 0).unwrap();
    let asks = async || {
        let grant = take(&backend, &name, millis(60_000)).await;
        assert_eq!(release(&backend, &grant).await, Release::Released);
    };
    let connected = |node: usize| {
        let clients = cluster[node].command::<String>(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap();
        clients.contains(&format!("laddr={} ", cluster[node].addr()))
    };
    asks().await;
    assert!(connected(0) && !connected(3));
    cluster[3].command::<()>(&["CLUSTER", "FAILOVER"]).unwrap();
    until("its replica is the master", || place(&cluster, &backend, &name) == 3).await;
    // It says itself that the slot has moved, and does so as long as it is asked.
    let moved = async {
        while !connected(3) || connected(0) {
            asks().await;
        }
    };
    soon(moved).await;
}

#[tokio::test]
async fn min_replicas_work_in_a_cluster() {
    let cluster = RedisCluster::start().unwrap();
    let reentrant = ReentrantOptions::new().with_min_replicas(1, millis(10_000));
    let backends: [Arc<dyn Backend>; 2] = [
        Arc::new(
            Token::new(connect(&cluster).await, TokenOptions::new().with_min_replicas(1, millis(10_000)))
                .await
                .unwrap(),
        ),
        Arc::new(Reentrant::with_options(connect(&cluster).await, reentrant).await.unwrap()),
    ];
    for backend in &backends {
        let mut grants = Vec::new();
        for number in 0..30 {
            grants.push(take(&**backend, &number.to_string(), millis(60_000)).await);
        }
        let batch: Vec<_> = grants.iter().map(|grant| Renew::new(grant, millis(90_000))).collect();
        for answer in backend.renew(&batch).await {
            answer.unwrap();
        }
        let slot = cluster.slot(&key_of(&**backend, "1")).unwrap();
        cluster.move_slot(slot, (place(&cluster, &**backend, "1") + 1) % 3).unwrap();
        let renewing = async {
            while let Err(error) = backend.renew(&[Renew::new(&grants[1], millis(90_000))]).await.remove(0) {
                assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
            }
        };
        soon(renewing).await;
    }
}

#[tokio::test]
async fn what_cannot_work_with_a_cluster_is_refused_at_once() {
    let none: [&str; 0] = [];
    let error = Connection::open_cluster(&none, Config::new()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None));
    let error = Connection::open_cluster(&["redis+unix:///a"], Config::new()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None));
    let single = RedisServer::start().unwrap();
    let error = Connection::open_cluster(&[single.url()], Config::new()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unsupported, Effect::None), "{error}");

    let cluster = RedisCluster::start().unwrap();
    let watch = TokenOptions::new().with_unlock(Unlock::Watch);
    let error = Token::new(connect(&cluster).await, watch).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unsupported, Effect::None));
    // A node of a cluster that is taken for a single server says what to do.
    let alone = Token::connect(&cluster[0].url()).await;
    let error = match alone {
        Err(error) => error,
        Ok(token) => {
            let mut errors = Vec::new();
            for name in ["a", "b", "c", "d", "e", "f"] {
                errors.extend(token.try_acquire(&claim(name, millis(5_000))).await.err());
            }
            errors.remove(0)
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("open_cluster"), "{error}");
}
