//! Members that are dead, silent or without a leader.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Backend, Effect, ErrorKind, Lease, Locks, Moment, Options, Release};
use lock_etcd::{Config, Etcd};
use lock_testkit::EtcdCluster;

use crate::ground::{ROOM, Waiter, admin, etcd, eventually, keys, one, renewed, take, three};

/// Each call ends within the limit of a request and some room, whatever is dead.
const LIMIT: Duration = Duration::from_secs(1);
const BOUND: Duration = Duration::from_secs(6);

/// Leader killed, and then leader stopped, while a lock is held: held on, or lost on time, and nobody else in before that.
#[tokio::test]
async fn a_lock_outlives_its_leader_or_is_lost_on_time() {
    let cluster = three();
    let locks = Locks::with_options(etcd(&cluster), Options::new().with_lease(Lease::renewed(Duration::from_secs(8))));
    let others = etcd(&cluster);
    for fault in [Fault::Kill, Fault::Stop] {
        let guard = tokio::time::timeout(ROOM, locks.lock("a").unwrap().acquire()).await.unwrap().unwrap();
        let leader = cluster.leader().unwrap();
        fault.begin(&cluster, leader);
        let limit = Moment::now().saturating_add(Duration::from_secs(12));
        let mut tries = 0;
        while !limit.remaining().is_zero() {
            let held_before = guard.is_held();
            let answer = others.try_acquire(&renewed("a", 8)).await;
            if let Ok(Some(grant)) = answer {
                // It was granted after this look at the guard at the earliest.
                assert!(!guard.is_held(), "{fault:?}: granted to another while it is held");
                assert_eq!(others.release(&grant).await.unwrap(), Release::Released);
                break;
            }
            tries += u32::from(held_before && answer.is_ok());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        println!("{fault:?}: held {}, {tries} refusals by the new leader while held", guard.is_held());
        assert!(guard.is_held(), "{fault:?}: an election takes less than the lease");
        assert!(tries > 0);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        fault.end(&cluster, leader);
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Stop,
}

impl Fault {
    fn begin(self, cluster: &EtcdCluster, place: usize) {
        match self {
            Self::Kill => cluster.member(place).kill().unwrap(),
            Self::Stop => cluster.member(place).stop().unwrap(),
        }
    }

    fn end(self, cluster: &EtcdCluster, place: usize) {
        match self {
            Self::Kill => cluster.member(place).restart().unwrap(),
            Self::Stop => cluster.member(place).cont().unwrap(),
        }
    }
}

/// A follower is dead or silent: at most the first call notices, and all others go to one that works.
#[tokio::test]
async fn one_bad_endpoint_costs_one_call_at_most() {
    let cluster = three();
    for fault in [Fault::Kill, Fault::Stop] {
        let leader = cluster.leader().unwrap();
        let (bad, good) = ((leader + 1) % 3, leader);
        let urls = [cluster.member(bad).url(), cluster.member(good).url()];
        let etcd = Etcd::connect(urls).unwrap();
        fault.begin(&cluster, bad);
        let mut failed = 0;
        let mut last = None;
        for round in 0..20 {
            match etcd.try_acquire(&renewed(&format!("{fault:?}-{round}"), 30)).await {
                Ok(grant) => last = grant,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                    failed += 1;
                }
            }
        }
        // A refused connection was certainly not used, so not even the first call fails.
        assert_eq!(failed, usize::from(matches!(fault, Fault::Stop)), "{fault:?}");
        assert_eq!(etcd.release(&last.unwrap()).await.unwrap(), Release::Released);
        fault.end(&cluster, bad);
    }
}

/// Without a majority every call says so in bounded time, and so does the end.
#[tokio::test]
async fn without_a_majority_every_call_ends() {
    let cluster = three();
    let etcd = etcd(&cluster);
    let held = take(&etcd, &renewed("a", 30)).await;
    let leader = cluster.leader().unwrap();
    for (place, fault) in [((leader + 1) % 3, Fault::Kill), ((leader + 2) % 3, Fault::Stop)] {
        fault.begin(&cluster, place);
    }
    let claim = renewed("b", 30);
    let started = Moment::now();
    let within = async |what: &str, error: lock_core::Error| {
        let took = Moment::now().saturating_duration_since(started);
        println!("{what}: {error} ({took:?} since the start)");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {error}");
    };
    for _ in 0..2 {
        let bounded = |call| tokio::time::timeout(BOUND, call);
        within("try", bounded(etcd.try_acquire(&claim)).await.expect("try ends").unwrap_err()).await;
        let stop = lock_core::Stop::new();
        within("acquire", tokio::time::timeout(BOUND, etcd.acquire(&claim, &stop)).await.expect("ends").unwrap_err())
            .await;
        within("release", tokio::time::timeout(BOUND, etcd.release(&held)).await.expect("ends").unwrap_err()).await;
        let renewal = [lock_core::Renew::new(&held, held.ttl)];
        let answer = tokio::time::timeout(BOUND, etcd.renew(&renewal)).await.expect("renew ends").remove(0);
        within("renew", answer.unwrap_err()).await;
        within("abandon", tokio::time::timeout(BOUND, etcd.abandon(&claim)).await.expect("ends").unwrap_err()).await;
        within("inspect", tokio::time::timeout(BOUND, etcd.inspect(&claim.key)).await.expect("ends").unwrap_err())
            .await;
    }
    within("close", tokio::time::timeout(BOUND, etcd.close()).await.expect("close ends").unwrap_err()).await;
    cluster.member((leader + 2) % 3).cont().unwrap();
}

/// One silent server: a hundred callers at once do not wait for one another.
#[tokio::test]
async fn a_silent_server_does_not_make_callers_wait_for_each_other() {
    let cluster = one();
    let config = Config::new().with_request_limit(LIMIT);
    let etcd = Arc::new(Etcd::connect_with(cluster.urls(), etcd_client::ConnectOptions::new(), config).unwrap());
    cluster.member(0).stop().unwrap();
    let calls: Vec<_> = (0..100)
        .map(|number| {
            let etcd = Arc::clone(&etcd);
            tokio::spawn(async move { etcd.try_acquire(&renewed(&format!("a-{number}"), 30)).await })
        })
        .collect();
    for call in calls {
        let answer = tokio::time::timeout(BOUND, call).await.expect("each call is bounded").unwrap();
        let error = answer.expect_err("the server is silent");
        // Not even the lease is there, so the claim has done nothing.
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
    }
    cluster.member(0).cont().unwrap();
}

/// A member dies while we watch through it: the place is kept, and the wait goes on at another.
#[tokio::test]
async fn a_waiter_goes_on_at_another_member() {
    let cluster = three();
    let leader = cluster.leader().unwrap();
    let follower = (leader + 1) % 3;
    let a = Arc::new(Etcd::connect([cluster.member(leader).url()]).unwrap());
    let urls = [cluster.member(follower).url(), cluster.member(leader).url()];
    let locks = Locks::new(Etcd::connect(urls).unwrap());
    let held = take(&a, &renewed("a", 60)).await;
    let waiting = tokio::spawn({
        let lock = locks.lock("a").unwrap();
        async move { lock.acquire().await }
    });
    let admin = admin(&cluster).await;
    eventually("it waits", async || keys(&admin, "hasp/a/").await.len() == 2).await;
    let place = keys(&admin, "hasp/a/").await.remove(1);
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.member(follower).kill().unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished());
    let mut kv = etcd_client::Client::connect([cluster.member(leader).url()], None).await.unwrap().kv_client();
    let there = kv.get(place.0, None).await.unwrap();
    assert_eq!(there.kvs().len(), 1, "the place was lost");
    assert_eq!(a.release(&held).await.unwrap(), Release::Released);
    let guard = tokio::time::timeout(ROOM, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Restarted with its data, a member still has the lock; the watches on it have ended, and begin anew.
#[tokio::test]
async fn a_restart_of_the_only_member_is_ridden_out() {
    let cluster = one();
    let (a, b) = (etcd(&cluster), etcd(&cluster));
    let held = take(&a, &renewed("a", 60)).await;
    let locks = Locks::with_options(b, Options::new().with_unavailable_after(ROOM));
    let waiting = tokio::spawn({
        let lock = locks.lock("a").unwrap();
        async move { lock.acquire().await }
    });
    let admin = admin(&cluster).await;
    eventually("it waits", async || keys(&admin, "hasp/a/").await.len() == 2).await;
    cluster.member(0).restart().unwrap();
    assert!(!waiting.is_finished());
    let answer = a.renew(&[lock_core::Renew::new(&held, held.ttl)]).await.remove(0);
    println!("first renewal after the restart: {answer:?}");
    eventually("released", async || matches!(a.release(&held).await, Ok(Release::Released))).await;
    let guard = tokio::time::timeout(ROOM, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn waiters_of_a_stopped_leader_are_served_by_the_next() {
    let cluster = three();
    let (a, b) = (etcd(&cluster), etcd(&cluster));
    let held = take(&a, &renewed("a", 60)).await;
    let waiter = Waiter::start(&b, renewed("a", 60)).await;
    let leader = cluster.leader().unwrap();
    cluster.member(leader).kill().unwrap();
    eventually("released", async || a.release(&held).await.is_ok()).await;
    match waiter.ended().await {
        Ok(grant) => assert!(grant.is_some()),
        // The driver asks again with the same claim, and it finds its place.
        Err(error) => assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{error}"),
    }
}
