//! Ways in: users, quotas, clients of the program's, and runtimes that end.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Permission, PermissionType, RoleRevokePermissionOptions};
use lock_core::{Backend, Effect, ErrorKind, Locks, Release, Renew};
use lock_etcd::{Config, Etcd};
use lock_testkit::EtcdCluster;

use crate::ground::{ROOM, Waiter, admin, etcd, keys, one, renewed, take};

/// The defaults, and a request has time enough on a busy machine.
fn patient() -> Config {
    Config::new().with_request_limit(Duration::from_secs(10))
}

/// The rights that the docs name are enough, and what is missing is said.
#[tokio::test]
async fn a_user_with_rights_on_the_prefix_can_lock() {
    let cluster = one();
    let mut root = admin(&cluster).await;
    root.user_add("root", "r", None).await.unwrap();
    root.user_grant_role("root", "root").await.unwrap();
    root.user_add("app", "secret", None).await.unwrap();
    root.role_add("locks").await.unwrap();
    let permission = Permission::new(PermissionType::Readwrite, "hasp/").with_prefix();
    root.role_grant_permission("locks", permission).await.unwrap();
    root.user_grant_role("app", "locks").await.unwrap();
    root.auth_enable().await.unwrap();

    let login = |user, password| ConnectOptions::new().with_user(user, password);
    let urls = || cluster.urls();
    let app = Arc::new(Etcd::connect_with(urls(), login("app", "secret"), patient()).unwrap());
    let held = take(&app, &renewed("a", 30)).await;
    let waiter = Waiter::start(&app, renewed("a", 30)).await;
    app.renew(&[Renew::new(&held, held.ttl)]).await.remove(0).unwrap();
    assert_eq!(app.list("").await.unwrap().len(), 1);
    assert_eq!(app.release(&held).await.unwrap(), Release::Released);
    let held = waiter.granted().await;
    assert_eq!(app.force_release(&held.claim.key).await.unwrap(), Release::Released);
    app.close().await.unwrap();

    for (etcd, says) in [
        (Etcd::connect_with(urls(), login("app", "wrong"), patient()), "user and password"),
        (Etcd::connect_with(urls(), login("app", "secret"), patient().with_prefix("other/")), "grant readwrite"),
        (Etcd::connect(urls()), "user and password"),
    ] {
        let error = etcd.unwrap().try_acquire(&renewed("a", 30)).await.expect_err("not allowed");
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }

    // Taken away while it is used.
    let app = Etcd::connect_with(urls(), login("app", "secret"), patient()).unwrap();
    let held = take(&app, &renewed("a", 30)).await;
    let root = Client::connect(urls(), Some(login("root", "r"))).await.unwrap();
    let all = RoleRevokePermissionOptions::new().with_prefix();
    root.auth_client().role_revoke_permission("locks", "hasp/", Some(all)).await.unwrap();
    let error = app.release(&held).await.expect_err("not allowed any more");
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
}

/// A full server refuses new locks, and says what to do; those that are held can be renewed and given back.
#[tokio::test]
async fn a_full_server_lets_locks_be_given_back() {
    let cluster = EtcdCluster::builder().flag("quota-backend-bytes", "2000000").start().unwrap();
    let etcd = etcd(&cluster);
    let held = take(&etcd, &renewed("a", 30)).await;
    let mut kv = admin(&cluster).await.kv_client();
    let mut number = 0;
    while kv.put(format!("fill-{number}"), vec![0; 100_000], None).await.is_ok() {
        number += 1;
    }
    let error = etcd.try_acquire(&renewed("b", 30)).await.expect_err("it is full");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
    assert!(error.to_string().contains("quota"), "{error}");
    etcd.renew(&[Renew::new(&held, held.ttl)]).await.remove(0).unwrap();
    assert_eq!(etcd.release(&held).await.unwrap(), Release::Released);
}

/// A connection is a task of a runtime; when that has ended, the next one gets a connection of its own.
#[test]
fn a_client_outlives_the_runtime_that_it_was_first_used_on() {
    let cluster = one();
    let etcd = etcd(&cluster);
    let mut held = None;
    for round in 0..3 {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            if let Some(old) = held.take() {
                etcd.renew(&[Renew::new(&old, old.ttl)]).await.remove(0).unwrap();
                assert_eq!(etcd.release(&old).await.unwrap(), Release::Released, "round {round}");
            }
            held = Some(take(&etcd, &renewed("a", 30)).await);
        });
    }
}

/// And the watch on the leases starts anew with it.
#[test]
fn a_loss_is_told_on_a_second_runtime_too() {
    let cluster = one();
    let etcd = etcd(&cluster);
    let first = tokio::runtime::Runtime::new().unwrap();
    let held = first.block_on(take(&etcd, &renewed("a", 60)));
    drop(first);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        etcd.renew(&[Renew::new(&held, held.ttl)]).await.remove(0).unwrap();
        let admin = admin(&cluster).await;
        crate::ground::revoke(&admin, keys(&admin, "hasp/a/").await[0].1).await;
        tokio::time::timeout(ROOM, held.loss.as_ref().unwrap().fired()).await.expect("told by the watch");
    });
}

#[tokio::test]
async fn a_label_is_the_keys_value_and_a_bare_etcd_client_serves() {
    let cluster = one();
    let client = Client::connect(cluster.urls(), None).await.unwrap();
    let etcd = Etcd::from_client(&client, patient()).unwrap();
    let claim = renewed("a", 30).with_label("host 7, pid 42");
    let held = take(&etcd, &claim).await;
    let seen = etcd.inspect(&claim.key).await.unwrap();
    assert_eq!(seen.label.as_deref(), Some("host 7, pid 42"));
    assert_eq!(seen.fencing_token, held.fencing_token);
    assert_eq!(seen.waiters, Some(0));
    assert!(seen.remaining.unwrap() <= Duration::from_secs(30));
    assert_eq!(etcd.release(&held).await.unwrap(), Release::Released);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let none: [&str; 0] = [];
    let zero = Config::new().with_request_limit(Duration::ZERO);
    let control = Config::new().with_prefix("a\nb");
    for (etcd, says) in [
        (Etcd::connect(none), "there is no endpoint"),
        (Etcd::connect_with(["http://127.0.0.1:1"], ConnectOptions::new(), zero), "`request_limit` is zero"),
        (Etcd::connect_with(["http://127.0.0.1:1"], ConnectOptions::new(), control), "control character"),
    ] {
        let error = etcd.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// Connecting is lazy, so a wrong URL is found out at first use, and a server that is down is ridden out.
#[tokio::test]
async fn a_server_that_starts_late_is_waited_for() {
    let cluster = one();
    cluster.member(0).kill().unwrap();
    let locks = Locks::new(Etcd::connect(cluster.urls()).unwrap());
    let error = locks.lock("a").unwrap().try_acquire().await.expect_err("it is down");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
    let waiting = tokio::spawn({
        let lock = locks.lock("a").unwrap();
        async move { lock.acquire_within(ROOM).await }
    });
    cluster.member(0).spawn().unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let wrong = Etcd::connect(["http://["]).unwrap();
    let error = wrong.try_acquire(&renewed("a", 30)).await.expect_err("no URL");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_works_with_a_password_and_an_unknown_certificate_is_refused() {
    let certificates = lock_testkit::Certificates::new().unwrap();
    let cluster = EtcdCluster::builder().members(3).tls(certificates.server(), certificates.key()).start().unwrap();
    let mut root = admin(&cluster).await;
    root.user_add("root", "r", None).await.unwrap();
    root.user_grant_role("root", "root").await.unwrap();
    root.auth_enable().await.unwrap();
    let urls: Vec<_> = cluster.members().iter().map(|member| member.tls_url().unwrap()).collect();
    let trusted = || {
        let authority = etcd_client::Certificate::from_pem(certificates.authority());
        let tls = etcd_client::TlsOptions::new().ca_certificate(authority);
        ConnectOptions::new().with_user("root", "r").with_tls(tls)
    };
    let client = Client::connect(&urls, Some(trusted())).await.unwrap();
    for etcd in [Etcd::connect_with(urls.clone(), trusted(), patient()), Etcd::from_client(&client, patient())] {
        let etcd = Arc::new(etcd.unwrap());
        let held = take(&etcd, &renewed("a", 30)).await;
        let waiter = Waiter::start(&etcd, renewed("a", 30)).await;
        etcd.renew(&[Renew::new(&held, held.ttl)]).await.remove(0).unwrap();
        assert_eq!(etcd.release(&held).await.unwrap(), Release::Released);
        let held = waiter.granted().await;
        assert_eq!(etcd.release(&held).await.unwrap(), Release::Released);
    }

    // The system does not know the authority.
    let doubting = ConnectOptions::new().with_user("root", "r");
    let etcd = Etcd::connect_with(urls.clone(), doubting, patient()).unwrap();
    let error = etcd.try_acquire(&renewed("a", 30)).await.expect_err("the certificate is refused");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None), "{error}");
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");

    // One server that is not trusted among others costs its turn only.
    let foreign = lock_testkit::Certificates::new().unwrap();
    let stranger = EtcdCluster::builder().tls(foreign.server(), foreign.key()).start().unwrap();
    let urls = [vec![stranger.members()[0].tls_url().unwrap()], urls].concat();
    let etcd = Etcd::connect_with(urls, trusted(), patient()).unwrap();
    assert!(etcd.try_acquire(&renewed("a", 30)).await.unwrap().is_some());
}
