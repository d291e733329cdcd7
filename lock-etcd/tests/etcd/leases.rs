//! Leases: whose they are, what ends them, and who is told.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Backend, Effect, ErrorKind, Lease, Locks, LossReason, Moment, Options, Release, Renew, Stop};
use lock_etcd::{Config, Etcd};
use lock_testkit::EtcdCluster;
use lock_testkit::fault::{Direction, Proxy};

use crate::ground::{ROOM, Waiter, admin, etcd, eventually, fixed, keys, one, renewed, revoke, take};

/// S58: one lease, two claims.
#[tokio::test]
async fn two_tasks_of_one_client_exclude_each_other() {
    let cluster = one();
    let etcd = etcd(&cluster);
    let first = take(&etcd, &renewed("a", 30)).await;
    assert!(etcd.try_acquire(&renewed("a", 30)).await.unwrap().is_none());
    let waiter = Waiter::start(&etcd, renewed("a", 30)).await;
    let queue = keys(&admin(&cluster).await, "hasp/a/").await;
    assert_eq!((queue.len(), queue[0].1), (2, queue[1].1), "two places under one lease: {queue:?}");
    assert!(!waiter.wait.is_finished());
    assert_eq!(etcd.release(&first).await.unwrap(), Release::Released);
    let second = waiter.granted().await;
    assert_eq!(etcd.release(&second).await.unwrap(), Release::Released);
    assert_eq!(etcd.release(&first).await.unwrap(), Release::NotHeld);
}

/// S56: with a ttl of 60 s the first keep-alive is 20 s away, so it is the watch that tells.
#[tokio::test]
async fn a_revoked_session_is_a_loss_at_once_for_all_under_it() {
    let cluster = one();
    let locks = Locks::with_options(etcd(&cluster), Options::new().with_lease(Lease::renewed(Duration::from_secs(60))));
    let guards = [locks.lock("a").unwrap().acquire().await.unwrap(), locks.lock("b").unwrap().acquire().await.unwrap()];
    let admin = admin(&cluster).await;
    let session = keys(&admin, "hasp/a/").await[0].1;
    revoke(&admin, session).await;
    for guard in &guards {
        let reason = tokio::time::timeout(Duration::from_secs(10), guard.lost()).await.expect("told by the watch");
        assert_eq!(reason, LossReason::NotHeld);
    }
    // And the next claim gets a new session.
    let again = locks.lock("a").unwrap();
    let guard = tokio::time::timeout(ROOM, again.acquire()).await.unwrap().unwrap();
    assert_ne!(keys(&admin, "hasp/a/").await[0].1, session);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_revoked_lease_of_a_fixed_grant_is_a_loss_at_once() {
    let cluster = one();
    let locks = Locks::with_options(etcd(&cluster), Options::new().with_lease(Lease::fixed(Duration::from_secs(60))));
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let other = locks.lock("b").unwrap().acquire().await.unwrap();
    let admin = admin(&cluster).await;
    revoke(&admin, keys(&admin, "hasp/a/").await[0].1).await;
    let reason = tokio::time::timeout(Duration::from_secs(10), guard.lost()).await.expect("told by the watch");
    assert_eq!(reason, LossReason::NotHeld);
    assert!(other.is_held(), "another fixed grant has another lease");
}

/// The watch is told what it missed while its connection was away: the lease was revoked meanwhile.
#[tokio::test]
async fn a_revoke_that_the_watch_missed_is_found_when_it_is_back() {
    let cluster = one();
    let proxy = Proxy::start_opaque(cluster.member(0).addr()).unwrap();
    let etcd = Arc::new(Etcd::connect([format!("http://{}", proxy.addr())]).unwrap());
    let held = take(&etcd, &renewed("a", 60)).await;
    let admin = admin(&cluster).await;
    proxy.black_hole();
    revoke(&admin, keys(&admin, "hasp/a/").await[0].1).await;
    proxy.cut_connections();
    proxy.heal();
    eventually("the loss is told", async || held.loss.as_ref().unwrap().is_fired()).await;
}

/// S31: neither made again nor believed to be held.
#[tokio::test]
async fn renewing_under_a_revoked_lease_is_lost() {
    let cluster = one();
    let (etcd, admin) = (etcd(&cluster), admin(&cluster).await);
    for claim in [renewed("a", 30), fixed("a", 30)] {
        let held = take(&etcd, &claim).await;
        revoke(&admin, keys(&admin, "hasp/a/").await[0].1).await;
        let error = etcd.renew(&[Renew::new(&held, held.ttl)]).await.remove(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert!(keys(&admin, "hasp/a/").await.is_empty());
        // A session is replaced for the next claim, in the same call.
        let next = take(&etcd, &claim_like(&claim)).await;
        assert_eq!(etcd.release(&next).await.unwrap(), Release::Released);
    }
}

fn claim_like(claim: &lock_core::Claim) -> lock_core::Claim {
    lock_core::Claim::new(claim.key.clone(), lock_core::Owner::random(), claim.lease)
}

/// S03: the server grants no less than one and a half election times.
#[tokio::test]
async fn a_ttl_below_the_servers_least_is_reported_as_it_was_granted() {
    let cluster = EtcdCluster::builder().default_timing().start().unwrap();
    let etcd = etcd(&cluster);
    let held = take(&etcd, &fixed("a", 1)).await;
    assert_eq!(held.ttl, Duration::from_secs(2));
    let shared = take(&etcd, &renewed("b", 1)).await;
    assert_eq!(shared.ttl, Duration::from_secs(2));
    let renewal = etcd.renew(&[Renew::new(&held, Duration::from_secs(1))]).await.remove(0).unwrap();
    assert_eq!(renewal.ttl, Duration::from_secs(2));
    let fast = one();
    assert_eq!(take(&crate::ground::etcd(&fast), &fixed("a", 1)).await.ttl, Duration::from_secs(1));
}

/// The store must keep it for as long as the grant says: counted from the keep-alive, not from the transaction.
#[tokio::test]
async fn a_grant_counts_from_the_request_that_restarted_the_ttl() {
    let cluster = one();
    let etcd = etcd(&cluster);
    let first = take(&etcd, &renewed("a", 5)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = Moment::now();
    let second = take(&etcd, &renewed("b", 5)).await;
    assert!(second.sent_at < before, "the session was started by the first grant, and not again");
    assert_eq!(second.sent_at, first.sent_at);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = Moment::now();
    let third = take(&etcd, &renewed("c", 5)).await;
    assert!(third.sent_at >= before, "a third of the ttl has passed, so it was kept alive beside");
}

/// Nobody holds, so nobody renews; the server ends the session, and the next claim does not trip over it.
#[tokio::test]
async fn an_idle_session_ends_and_is_replaced() {
    let cluster = one();
    let (etcd, admin) = (etcd(&cluster), admin(&cluster).await);
    let held = take(&etcd, &renewed("a", 1)).await;
    assert_eq!(etcd.release(&held).await.unwrap(), Release::Released);
    eventually("the session has ended", async || admin.lease_client().leases().await.unwrap().leases().is_empty())
        .await;
    let next = take(&etcd, &renewed("a", 1)).await;
    assert!(next.sent_at.saturating_add(next.ttl) > Moment::now());
    assert_eq!(etcd.release(&next).await.unwrap(), Release::Released);
}

/// The key moves to a lease of the longer ttl and stays the same key; what ends the old lease is nothing to it.
#[tokio::test]
async fn an_extension_moves_the_key_to_another_lease() {
    let cluster = one();
    let (etcd, admin) = (etcd(&cluster), admin(&cluster).await);
    for claim in [renewed("a", 10), fixed("a", 10)] {
        let held = take(&etcd, &claim).await;
        let before = keys(&admin, "hasp/a/").await;
        let longer = Duration::from_secs(70);
        let renewal = etcd.renew(&[Renew::new(&held, longer)]).await.remove(0).unwrap();
        assert_eq!(renewal.ttl, longer);
        let after = keys(&admin, "hasp/a/").await;
        assert_eq!(after[0].0, before[0].0);
        assert_ne!(after[0].1, before[0].1);
        assert_eq!(etcd.inspect(&claim.key).await.unwrap().fencing_token, held.fencing_token);
        assert!(etcd.inspect(&claim.key).await.unwrap().remaining.unwrap() > Duration::from_secs(60));
        if claim.lease.is_renewed() {
            revoke(&admin, before[0].1).await;
        }
        let renewal = etcd.renew(&[Renew::new(&held, longer)]).await.remove(0).unwrap();
        assert_eq!(renewal.ttl, longer);
        // The end of the new one is its loss.
        revoke(&admin, after[0].1).await;
        eventually("the loss is told", async || held.loss.as_ref().unwrap().is_fired()).await;
    }
}

/// The lease was made and the reply lost: the claim comes again, with a lease of the same id.
#[tokio::test]
async fn a_lease_whose_reply_was_lost_is_found_again() {
    let cluster = one();
    let proxy = Proxy::start_opaque(cluster.member(0).addr()).unwrap();
    let config = Config::new().with_request_limit(Duration::from_millis(500));
    let options = etcd_client::ConnectOptions::new();
    let etcd = Etcd::connect_with([format!("http://{}", proxy.addr())], options, config).unwrap();
    let admin = admin(&cluster).await;
    let claim = fixed("a", 30);
    assert!(!etcd.inspect(&claim.key).await.unwrap().held);
    proxy.set_delay(Direction::ToClient, Duration::from_secs(1));
    let error = etcd.acquire(&claim, &Stop::new()).await.expect_err("the reply is late");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
    proxy.set_delay(Direction::ToClient, Duration::ZERO);
    eventually("the lease is there", async || admin.lease_client().leases().await.unwrap().leases().len() == 1).await;
    // The first tries may stand behind the late reply.
    let mut held = None;
    eventually("it is granted", async || {
        held = etcd.acquire(&claim, &Stop::new()).await.ok().flatten();
        held.is_some()
    })
    .await;
    let held = held.unwrap();
    assert_eq!(held.ttl, Duration::from_secs(30));
    assert_eq!(admin.lease_client().leases().await.unwrap().leases().len(), 1);
    assert_eq!(etcd.release(&held).await.unwrap(), Release::Released);
}

/// etcd reads past every deleted key until a compaction, so a lock that changes hands often must not leave one each time.
#[tokio::test]
async fn claims_that_follow_each_other_use_one_key() {
    let cluster = one();
    let (etcd, admin) = (etcd(&cluster), admin(&cluster).await);
    let mut used = std::collections::HashSet::new();
    for round in 0..4 {
        let claim = if round % 2 == 0 { renewed("a", 30) } else { fixed("a", 30) };
        let held = take(&etcd, &claim).await;
        // A waiter beside it has a key of its own.
        let waiter = Waiter::start(&etcd, renewed("a", 30)).await;
        used.insert(keys(&admin, "hasp/a/").await[0].0.clone());
        assert_eq!(etcd.release(&held).await.unwrap(), Release::Released);
        let held = waiter.granted().await;
        assert_eq!(etcd.release(&held).await.unwrap(), Release::Released);
    }
    assert_eq!(used.len(), 1, "{used:?}");
}

/// The key of a holder that nobody gave back is still there; the next claim goes apart and waits behind it.
#[tokio::test]
async fn a_key_that_was_left_behind_is_not_taken_for_ones_own() {
    let cluster = one();
    let (etcd, admin) = (etcd(&cluster), admin(&cluster).await);
    drop(take(&etcd, &renewed("a", 30)).await);
    assert!(etcd.try_acquire(&renewed("a", 30)).await.unwrap().is_none());
    let waiter = Waiter::start(&etcd, renewed("a", 30)).await;
    assert_eq!(keys(&admin, "hasp/a/").await.len(), 2);
    assert_eq!(etcd.force_release(&renewed("a", 30).key).await.unwrap(), Release::Released);
    let held = waiter.granted().await;
    assert_eq!(etcd.release(&held).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn what_is_released_leaves_no_lease_of_its_own_and_close_ends_the_session() {
    let cluster = one();
    let (etcd, admin) = (etcd(&cluster), admin(&cluster).await);
    let held = take(&etcd, &renewed("held", 30)).await;
    for _ in 0..3 {
        let grant = take(&etcd, &fixed("a", 30)).await;
        assert!(etcd.try_acquire(&fixed("a", 30)).await.unwrap().is_none());
        assert_eq!(etcd.release(&grant).await.unwrap(), Release::Released);
    }
    assert_eq!(admin.lease_client().leases().await.unwrap().leases().len(), 1, "the session's alone");
    etcd.close().await.unwrap();
    assert!(keys(&admin, "").await.is_empty() && admin.lease_client().leases().await.unwrap().leases().is_empty());
    assert!(held.loss.unwrap().is_fired());
}
