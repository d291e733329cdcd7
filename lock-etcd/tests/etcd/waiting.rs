//! Waiting: who is woken by what, and what a wait that ends in any way leaves.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Txn, TxnOp};
use lock_core::{Backend, Effect, ErrorKind, Lease, Locks, Moment, Options, Release};
use lock_testkit::fault::{Direction, Proxy};

use crate::ground::{ROOM, Waiter, admin, etcd, eventually, fixed, keys, one, renewed, revoke, take};

/// S57, P27: B's lease is revoked while it waits, C queues, A releases. B must not be told that it holds.
#[tokio::test]
async fn a_waiter_whose_lease_ends_is_not_told_that_it_holds() {
    let cluster = one();
    let (a, b, c) = (etcd(&cluster), etcd(&cluster), etcd(&cluster));
    let admin = admin(&cluster).await;
    for claim in [renewed("a", 30), fixed("a", 30)] {
        let held = take(&a, &renewed("a", 30)).await;
        let b_waits = Waiter::start(&b, claim).await;
        let queue = keys(&admin, "hasp/a/").await;
        revoke(&admin, queue[1].1).await;
        let c_waits = Waiter::start(&c, renewed("a", 30)).await;
        assert_eq!(a.release(&held).await.unwrap(), Release::Released);
        let error = b_waits.ended().await.expect_err("its place is gone");
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
        let next = c_waits.granted().await;
        assert_eq!(keys(&admin, "hasp/a/").await.len(), 1);
        assert_eq!(c.release(&next).await.unwrap(), Release::Released);
    }
}

/// The same through `Locks`: it queues again, behind those who have come meanwhile.
#[tokio::test]
async fn a_waiter_that_lost_its_place_queues_again() {
    let cluster = one();
    let (a, c) = (etcd(&cluster), etcd(&cluster));
    let admin = admin(&cluster).await;
    let held = take(&a, &renewed("a", 30)).await;
    let locks = Locks::new(lock_etcd::Etcd::connect(cluster.urls()).unwrap());
    let waiting = tokio::spawn({
        let lock = locks.lock("a").unwrap();
        async move { lock.acquire().await }
    });
    eventually("it waits", async || keys(&admin, "hasp/a/").await.len() == 2).await;
    let first = keys(&admin, "hasp/a/").await.remove(1);
    revoke(&admin, first.1).await;
    eventually("it waits again", async || {
        let queue = keys(&admin, "hasp/a/").await;
        queue.len() == 2 && queue[1] != first
    })
    .await;
    assert!(!waiting.is_finished());
    assert_eq!(a.release(&held).await.unwrap(), Release::Released);
    let guard = tokio::time::timeout(ROOM, waiting).await.unwrap().unwrap().unwrap();
    assert!(guard.is_held() && c.try_acquire(&renewed("a", 30)).await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// The keeper renews grants only, so a wait of several ttls needs keep-alives of its own.
#[tokio::test]
async fn a_waiter_keeps_its_own_lease_alive() {
    let cluster = one();
    let (a, b) = (etcd(&cluster), etcd(&cluster));
    let admin = admin(&cluster).await;
    for claim in [renewed("a", 2), fixed("a", 2)] {
        let held = take(&a, &renewed("a", 60)).await;
        let waiter = Waiter::start(&b, claim).await;
        let before = keys(&admin, "hasp/a/").await;
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(keys(&admin, "hasp/a/").await, before, "the place has been lost");
        let released = Moment::now();
        assert_eq!(a.release(&held).await.unwrap(), Release::Released);
        let grant = waiter.granted().await;
        if !grant.claim.lease.is_renewed() {
            assert!(grant.sent_at >= released, "a fixed lease has its full ttl from when it counts");
        }
        assert!(grant.sent_at.saturating_add(grant.ttl) > Moment::now());
        assert_eq!(b.release(&grant).await.unwrap(), Release::Released);
    }
}

/// The network is away for a moment: the same claim finds the place that it had, and takes no second one behind it.
#[tokio::test]
async fn a_wait_that_failed_finds_its_place_again() {
    let cluster = one();
    let proxy = Proxy::start_opaque(cluster.member(0).addr()).unwrap();
    let etcd = Arc::new(lock_etcd::Etcd::connect([format!("http://{}", proxy.addr())]).unwrap());
    let admin = admin(&cluster).await;
    let held = take(&etcd, &renewed("a", 30)).await;
    let claim = renewed("a", 30);
    let waiter = Waiter::start(&etcd, claim.clone()).await;
    let before = keys(&admin, "hasp/a/").await;
    proxy.black_hole();
    let error = waiter.ended().await.expect_err("the network is away");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{error}");
    proxy.heal();
    eventually("released", async || etcd.release(&held).await.is_ok()).await;
    let again = tokio::time::timeout(ROOM, etcd.acquire(&claim, &lock_core::Stop::new())).await;
    let grant = again.expect("nobody is before it").unwrap().unwrap();
    assert_eq!(keys(&admin, "hasp/a/").await, before[1..]);
    assert_eq!(etcd.release(&grant).await.unwrap(), Release::Released);
}

/// S54: dropped after any number of steps.
#[tokio::test]
async fn a_cancelled_waiter_leaves_no_key() {
    let cluster = one();
    let a = etcd(&cluster);
    let admin = admin(&cluster).await;
    let held = take(&a, &renewed("a", 60)).await;
    for lease in [Lease::renewed(Duration::from_secs(60)), Lease::fixed(Duration::from_secs(60))] {
        let locks = Locks::with_options(etcd(&cluster), Options::new().with_lease(lease));
        let lock = locks.lock("a").unwrap();
        for millis in 0..25 {
            let wait = tokio::time::timeout(Duration::from_micros(millis * 300), lock.acquire()).await;
            assert!(wait.is_err(), "it is held");
        }
        eventually("only the holder is in the queue", async || keys(&admin, "hasp/a/").await.len() == 1).await;
        locks.shutdown().await.unwrap();
        assert_eq!(keys(&admin, "hasp/a/").await.len(), 1);
    }
    assert_eq!(a.release(&held).await.unwrap(), Release::Released);
    eventually("nothing but the session of the holder is left", async || {
        let leases = admin.lease_client().leases().await.unwrap();
        keys(&admin, "hasp/a/").await.is_empty() && leases.leases().len() == 1
    })
    .await;
}

/// S55: a live watch survives a compaction.
#[tokio::test]
async fn a_compaction_while_waiting_changes_nothing() {
    let cluster = one();
    let (a, b) = (etcd(&cluster), etcd(&cluster));
    let admin = admin(&cluster).await;
    let held = take(&a, &renewed("a", 60)).await;
    let waiter = Waiter::start(&b, renewed("a", 60)).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    write_and_compact(&admin).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiter.wait.is_finished());
    assert_eq!(a.release(&held).await.unwrap(), Release::Released);
    let grant = waiter.granted().await;
    assert_eq!(b.release(&grant).await.unwrap(), Release::Released);
}

/// S55: the connection is away while the predecessor goes and its revision is compacted, so no watch can tell of it.
#[tokio::test]
async fn a_release_and_a_compaction_while_the_watch_was_away_are_found_out() {
    let cluster = one();
    let proxy = Proxy::start_opaque(cluster.member(0).addr()).unwrap();
    let a = etcd(&cluster);
    let b = Arc::new(lock_etcd::Etcd::connect([format!("http://{}", proxy.addr())]).unwrap());
    let admin = admin(&cluster).await;
    let held = take(&a, &renewed("a", 60)).await;
    let locks = Locks::with_options(b, Options::new());
    let waiting = tokio::spawn({
        let lock = locks.lock("a").unwrap();
        async move { lock.acquire_within(ROOM).await }
    });
    eventually("it waits", async || keys(&admin, "hasp/a/").await.len() == 2).await;
    proxy.black_hole();
    assert_eq!(a.release(&held).await.unwrap(), Release::Released);
    write_and_compact(&admin).await;
    proxy.cut_connections();
    proxy.heal();
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.is_held());
}

async fn write_and_compact(admin: &etcd_client::Client) {
    let mut kv = admin.kv_client();
    let mut revision = 0;
    for _ in 0..10 {
        revision = kv.put("other", "x", None).await.unwrap().header().unwrap().revision();
    }
    kv.compact(revision, None).await.unwrap();
}

/// S53: each of a hundred waiters watches the one before it, so one release is one event for one of them.
#[tokio::test]
async fn one_release_wakes_one_of_a_hundred_waiters() {
    const WAITERS: usize = 100;

    let cluster = one();
    let clients: Vec<_> = (0..10).map(|_| etcd(&cluster)).collect();
    let admin = admin(&cluster).await;
    let member = cluster.member(0);
    let mut held = take(&clients[0], &renewed("herd", 60)).await;
    let mut waiters = Vec::new();
    for place in 0..WAITERS {
        waiters.push(Waiter::start(&clients[place % 10], renewed("herd", 60)).await);
    }
    eventually("all of them watch", async || {
        member.metric("etcd_debugging_mvcc_watcher_total").unwrap() >= (WAITERS + clients.len()) as f64
    })
    .await;
    assert_eq!(keys(&admin, "hasp/herd/").await.len(), WAITERS + 1);
    let mut told = 0.0;
    let mut waiters = waiters.into_iter();
    for place in 0..10 {
        let before = member.metric("etcd_debugging_mvcc_events_total").unwrap();
        // The holder before was the client's of one place less.
        let holder = &clients[place.max(1) - 1];
        assert_eq!(holder.release(&held).await.unwrap(), Release::Released);
        held = waiters.next().unwrap().granted().await;
        assert!(waiters.as_slice().iter().all(|waiter| !waiter.wait.is_finished()));
        let events = member.metric("etcd_debugging_mvcc_events_total").unwrap() - before;
        // None, if the next one looked just then.
        assert!(events <= 1.0, "place {place}: {events} events");
        told += events;
    }
    assert!(told >= 5.0, "only {told} of 10 were told");
}

/// From the revision that was read, the server would take the watch for a late one and serve it in a pass every 100 ms.
#[tokio::test]
async fn a_hand_over_is_prompt_after_any_pause() {
    let cluster = one();
    let (a, b) = (etcd(&cluster), etcd(&cluster));
    for pause in [0, 5, 20, 50, 99, 150] {
        let mut times = Vec::new();
        for _ in 0..9 {
            let held = take(&a, &renewed("a", 60)).await;
            let waiter = Waiter::start(&b, renewed("a", 60)).await;
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let released = Moment::now();
            assert_eq!(a.release(&held).await.unwrap(), Release::Released);
            let grant = waiter.granted().await;
            times.push(Moment::now().saturating_duration_since(released));
            assert_eq!(b.release(&grant).await.unwrap(), Release::Released);
        }
        times.sort_unstable();
        println!("after {pause} ms: median {:?}, longest {:?}", times[4], times[8]);
        assert!(times[4] < Duration::from_millis(20), "after {pause} ms: {times:?}");
    }
}

/// While others write all the time, and the way to the server is long, there is always something between a look and its watch.
/// The bound is in raw transactions on the same way at the same moment, because a busy machine delays them alike: a hand-over
/// is a short one, an event and a long one, which is about two; one by a late watch lies anywhere in 100 ms.
#[tokio::test]
async fn a_hand_over_is_prompt_in_a_busy_store() {
    const ROUNDS: usize = 31;

    let cluster = one();
    let proxy = Proxy::start_opaque(cluster.member(0).addr()).unwrap();
    proxy.set_delay(Direction::ToServer, Duration::from_millis(2));
    let url = format!("http://{}", proxy.addr());
    let (a, b) = (etcd(&cluster), Arc::new(lock_etcd::Etcd::connect([&url]).unwrap()));
    let far = etcd_client::Client::connect([&url], None).await.unwrap();
    let admin = admin(&cluster).await;
    let writers: Vec<_> = (0..2)
        .map(|_| {
            let mut kv = admin.kv_client();
            tokio::spawn(async move {
                loop {
                    kv.put("other", "x", None).await.unwrap();
                }
            })
        })
        .collect();
    let (mut raw, mut times) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let sent = Moment::now();
        far.kv_client().txn(Txn::new().and_then([TxnOp::put("raw", "x", None)])).await.unwrap();
        raw.push(Moment::now().saturating_duration_since(sent));
        let held = take(&a, &renewed("a", 60)).await;
        let waiter = Waiter::start(&b, renewed("a", 60)).await;
        // Time to begin the watch anew a few times, and less than until the next pass.
        tokio::time::sleep(7 * raw[round]).await;
        let released = Moment::now();
        assert_eq!(a.release(&held).await.unwrap(), Release::Released);
        let grant = waiter.granted().await;
        times.push(Moment::now().saturating_duration_since(released));
        assert_eq!(b.release(&grant).await.unwrap(), Release::Released);
    }
    assert!(writers.iter().all(|writer| !writer.is_finished()), "they wrote all the time");
    for writer in writers {
        writer.abort();
    }
    raw.sort_unstable();
    times.sort_unstable();
    let middle = ROUNDS / 2;
    println!("median {:?}, longest {:?}; a transaction {:?}", times[middle], times[ROUNDS - 1], raw[middle]);
    assert!(times[middle] < 4 * raw[middle], "{times:?}; a transaction {:?}", raw[middle]);
}

/// The watch tells of nothing before it began, and the next look without a cause would come after 600 ms.
#[tokio::test]
async fn a_release_between_the_look_and_the_watch_is_seen_at_once() {
    let cluster = one();
    let proxy = Proxy::start_opaque(cluster.member(0).addr()).unwrap();
    let url = format!("http://{}", proxy.addr());
    let (a, b) = (etcd(&cluster), Arc::new(lock_etcd::Etcd::connect([&url]).unwrap()));
    let far = etcd_client::Client::connect([&url], None).await.unwrap();
    proxy.set_delay(Direction::ToServer, Duration::from_millis(50));
    let (mut raw, mut times) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let sent = Moment::now();
        far.kv_client().txn(Txn::new().and_then([TxnOp::put("raw", "x", None)])).await.unwrap();
        raw.push(Moment::now().saturating_duration_since(sent));
        let held = take(&a, &renewed("a", 60)).await;
        let waiter = Waiter::start(&b, renewed("a", 60)).await;
        // The request for the watch is on its way.
        let released = Moment::now();
        assert_eq!(a.release(&held).await.unwrap(), Release::Released);
        let grant = waiter.granted().await;
        times.push(Moment::now().saturating_duration_since(released));
        assert_eq!(b.release(&grant).await.unwrap(), Release::Released);
    }
    raw.sort_unstable();
    times.sort_unstable();
    println!("median {:?}; a transaction {:?}", times[2], raw[2]);
    assert!(times[2] < 6 * raw[2], "{times:?}; a transaction {:?}", raw[2]);
}

/// A look every 600 to 800 ms, and next to nothing else.
#[tokio::test]
async fn an_idle_waiter_sends_next_to_nothing() {
    let cluster = one();
    let (a, b) = (etcd(&cluster), etcd(&cluster));
    let _held = take(&a, &renewed("a", 60)).await;
    let waiter = Waiter::start(&b, renewed("a", 60)).await;
    let received = || cluster.member(0).metric("etcd_network_client_grpc_received_bytes_total").unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = received();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let bytes = received() - before;
    // A look and its new watch are about 400 bytes; seven of them fit.
    assert!(bytes < 5_000.0, "{bytes} bytes in 4 s");
    waiter.stop.fire();
    assert!(waiter.ended().await.unwrap().is_none());
}
