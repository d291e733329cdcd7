//! Giving up a claim for good, whatever of it is still on its way.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Backend, Effect, Release, Stop, Undone};
use lock_etcd::{Config, Etcd};
use lock_testkit::fault::Proxy;

use crate::ground::{admin, etcd, eventually, fixed, keys, one, renewed, take};

/// A request of the claim that comes after the abandon finds the tombstone.
#[tokio::test]
async fn an_abandoned_claim_takes_no_place_any_more() {
    let cluster = one();
    let (etcd, admin) = (etcd(&cluster), admin(&cluster).await);
    // So that there is a session whose lease its requests would name.
    let other = take(&etcd, &renewed("other", 30)).await;
    let claim = renewed("a", 30);
    assert_eq!(etcd.abandon(&claim).await.unwrap(), Undone::Settled);
    for _ in 0..2 {
        let error = etcd.try_acquire(&claim).await.expect_err("it was abandoned");
        assert_eq!(error.effect(), Effect::None, "{error}");
        etcd.acquire(&claim, &Stop::new()).await.expect_err("it was abandoned");
    }
    assert!(keys(&admin, "hasp/a/").await.is_empty());
    // Others are not kept from it.
    let next = take(&etcd, &renewed("a", 30)).await;
    assert_eq!(etcd.release(&next).await.unwrap(), Release::Released);
    assert_eq!(etcd.release(&other).await.unwrap(), Release::Released);
}

/// The request is held up in the network, the claim is abandoned over another endpoint, and then the network heals.
#[tokio::test]
async fn a_late_request_of_an_abandoned_claim_changes_nothing() {
    let cluster = one();
    let admin = admin(&cluster).await;
    for round in 0..20 {
        let proxy = Proxy::start_opaque(cluster.member(0).addr()).unwrap();
        let urls = [format!("http://{}", proxy.addr()), cluster.member(0).url()];
        let config = Config::new().with_request_limit(Duration::from_millis(300));
        let etcd = Etcd::connect_with(urls, etcd_client::ConnectOptions::new(), config).unwrap();
        let name = format!("late-{round}");
        let warm = take(&etcd, &renewed("warm", 30)).await;
        assert_eq!(etcd.release(&warm).await.unwrap(), Release::Released);
        let claim = if round % 2 == 0 { renewed(&name, 30) } else { fixed(&name, 30) };
        proxy.black_hole();
        let error = etcd.try_acquire(&claim).await.expect_err("the network is away");
        if claim.lease.is_renewed() {
            assert_eq!(error.effect(), Effect::Unknown, "{error}");
        }
        assert_eq!(etcd.abandon(&claim).await.unwrap(), Undone::Settled);
        proxy.heal();
        // What was held up arrives before this does.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(keys(&admin, &format!("hasp/{name}/")).await.is_empty(), "round {round}");
    }
}

/// Tombstones live as long as their lease; a session that has many is replaced, and goes when its last grant goes.
#[tokio::test]
async fn a_session_full_of_tombstones_is_replaced() {
    let cluster = one();
    let (etcd, admin) = (etcd(&cluster), admin(&cluster).await);
    let held = take(&etcd, &renewed("a", 2)).await;
    let session = keys(&admin, "hasp/a/").await[0].1;
    let abandons = (0..1_000).map(|_| {
        let etcd = Arc::clone(&etcd);
        async move { etcd.abandon(&renewed("gone", 2)).await.unwrap() }
    });
    // The session must not end meanwhile.
    let keeping = tokio::spawn({
        let (etcd, held) = (Arc::clone(&etcd), held.clone());
        async move {
            loop {
                etcd.renew(&[lock_core::Renew::new(&held, held.ttl)]).await.remove(0).unwrap();
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
    });
    for abandon in abandons {
        assert_eq!(abandon.await, Undone::Settled);
    }
    let next = take(&etcd, &renewed("b", 2)).await;
    assert_ne!(keys(&admin, "hasp/b/").await[0].1, session);
    keeping.abort();
    assert_eq!(etcd.release(&held).await.unwrap(), Release::Released);
    assert_eq!(etcd.release(&next).await.unwrap(), Release::Released);
    eventually("the tombstones have gone with their lease", async || keys(&admin, "hasp/%undone/").await.is_empty())
        .await;
}
