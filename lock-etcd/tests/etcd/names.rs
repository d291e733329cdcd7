//! Names: none nests in another, unless raw ones are asked for.

use lock_core::{Backend, ErrorKind, Release};
use lock_etcd::{Config, Etcd, Names};

use crate::ground::{admin, etcd, keys, one, renewed, take};

#[tokio::test]
async fn a_name_below_another_is_a_lock_of_its_own() {
    let cluster = one();
    let etcd = etcd(&cluster);
    let below = take(&etcd, &renewed("a/b", 30)).await;
    let above = take(&etcd, &renewed("a", 30)).await;
    assert!(keys(&admin(&cluster).await, "hasp/a%2Fb/").await.len() == 1);
    for grant in [below, above] {
        assert_eq!(etcd.release(&grant).await.unwrap(), Release::Released);
    }
}

/// The trap that the docs tell of.
#[tokio::test]
async fn raw_names_nest_one_way() {
    let cluster = one();
    let config = Config::new().with_names(Names::Raw);
    let etcd = Etcd::connect_with(cluster.urls(), etcd_client::ConnectOptions::new(), config).unwrap();
    let below = take(&etcd, &renewed("a/b", 30)).await;
    assert!(etcd.try_acquire(&renewed("a", 30)).await.unwrap().is_none());
    assert_eq!(etcd.list("a/").await.unwrap().len(), 1);
    assert_eq!(etcd.release(&below).await.unwrap(), Release::Released);
    let above = take(&etcd, &renewed("a", 30)).await;
    let below = take(&etcd, &renewed("a/b", 30)).await;
    for grant in [above, below] {
        assert_eq!(etcd.release(&grant).await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn without_a_prefix_nothing_is_listed() {
    let cluster = one();
    let config = Config::new().with_prefix("");
    let etcd = Etcd::connect_with(cluster.urls(), etcd_client::ConnectOptions::new(), config).unwrap();
    let held = take(&etcd, &renewed("a", 30)).await;
    assert_eq!(keys(&admin(&cluster).await, "a/").await.len(), 1);
    assert_eq!(etcd.list("").await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(etcd.release(&held).await.unwrap(), Release::Released);
}
