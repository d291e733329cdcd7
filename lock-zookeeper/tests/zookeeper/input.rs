//! Connect strings and settings that cannot be used.

use lock_core::{Effect, ErrorKind, Release};
use lock_zookeeper::{Config, ZooKeeper};
use tokio::net::TcpListener;
use zookeeper_client::{Acls, CreateMode};

use crate::ground::{Ground, claim, connector, millis, open, take};

#[tokio::test]
async fn a_connect_string_or_prefix_that_cannot_be_read_says_how_to_write_it() {
    for (hosts, prefix, says) in [
        ("localhost:port", "/hasp", "host:port"),
        ("", "/hasp", "host:port"),
        ("localhost:2181", "hasp", "must begin with `/`"),
        ("localhost:2181", "/hasp/", "write it as `/a/b`"),
    ] {
        let config = Config::new().with_prefix(prefix);
        let error = ZooKeeper::from_connector(connector(), hosts, config).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::InvalidInput, Effect::None),
            "{hosts} {prefix}: {error}"
        );
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_or_is_silent_is_unavailable_within_the_limit() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_addr = silent.local_addr().unwrap().to_string();
    for hosts in ["127.0.0.1:1", &silent_addr] {
        let config = Config::new().with_connect_limit(millis(300));
        let began = lock_core::Moment::now();
        let error = ZooKeeper::from_connector(connector(), hosts, config).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
        assert!(lock_core::Moment::now().saturating_duration_since(began) < millis(3_000));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absent_chroot_is_an_error_until_it_is_made() {
    let ground = Ground::new();
    let ours = open(&format!("{}/team/a", ground.ensemble.hosts()), Config::new()).await;
    let error = ours.try_acquire(&claim("rooted")).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None));
    assert!(error.to_string().contains("create it"), "{error}");
    let look = ground.look().await;
    look.mkdir("/team/a", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    let grant = take(&ours, "rooted").await;
    assert!(look.check_stat("/team/a/hasp/rooted").await.unwrap().is_some());
    assert_eq!(ours.list("").await.unwrap().as_slice(), std::slice::from_ref(&grant.claim.key));
    assert_eq!(ours.release(&grant).await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_of_another_backend_is_not_taken_for_ours() {
    let ground = Ground::new();
    let ours = ground.direct().await;
    let foreign = lock_core::Grant::new(claim("foreign"), lock_core::Moment::now(), millis(1_000));
    assert_eq!(ours.release(&foreign).await.unwrap_err().kind(), ErrorKind::Backend);
    let renewed = ours.renew(&[lock_core::Renew::new(&foreign, millis(1_000))]).await.remove(0);
    assert_eq!(renewed.unwrap_err().kind(), ErrorKind::Backend);
}
