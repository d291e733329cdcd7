//! `etcdctl lock` and ours on one name.

use std::process::Stdio;
use std::time::Duration;

use lock_core::{Backend, Moment, Release};
use lock_etcd::{Config, Etcd, Names};
use lock_testkit::EtcdCluster;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::ground::{ROOM, Waiter, admin, eventually, keys, one, renewed, take};

/// The name has a `/` in it and the prefix is empty, as the other side has it.
const NAME: &str = "/it/one";

fn ours(cluster: &EtcdCluster) -> std::sync::Arc<Etcd> {
    let config = Config::new().with_prefix("").with_names(Names::Raw);
    std::sync::Arc::new(Etcd::connect_with(cluster.urls(), etcd_client::ConnectOptions::new(), config).unwrap())
}

/// `etcdctl lock`, which ends with the test; it prints its key when it holds the lock.
fn etcdctl(cluster: &EtcdCluster) -> Child {
    Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &cluster.urls()[0], "lock", "--ttl", "3", NAME])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("etcdctl is of Debian's etcd-client; run `./x setup`")
}

async fn holds(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    tokio::time::timeout(ROOM, lines.next_line()).await.expect("it gets the lock").unwrap().expect("it prints its key")
}

#[tokio::test]
async fn while_etcdctl_holds_we_wait_and_are_woken_by_its_end() {
    let cluster = one();
    let etcd = ours(&cluster);
    let mut theirs = etcdctl(&cluster);
    let key = holds(&mut theirs).await;
    assert!(etcd.try_acquire(&renewed(NAME, 30)).await.unwrap().is_none());
    let seen = etcd.inspect(&renewed(NAME, 30).key).await.unwrap();
    assert_eq!(seen.holder.as_deref(), key.rsplit('/').next());
    let waiter = Waiter::start(&etcd, renewed(NAME, 30)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiter.wait.is_finished());
    // TERM: it deletes its key.
    let pid = theirs.id().unwrap().to_string();
    let released = Moment::now();
    assert!(Command::new("kill").arg(&pid).status().await.unwrap().success());
    let grant = waiter.granted().await;
    println!("woken after {:?}", Moment::now().saturating_duration_since(released));
    assert_eq!(etcd.release(&grant).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn while_we_hold_etcdctl_waits_and_is_woken_by_our_release() {
    let cluster = one();
    let etcd = ours(&cluster);
    let held = take(&etcd, &renewed(NAME, 30)).await;
    let mut theirs = etcdctl(&cluster);
    let admin = admin(&cluster).await;
    eventually("it queues", async || keys(&admin, "/it/one/").await.len() == 2).await;
    assert!(tokio::time::timeout(Duration::from_secs(1), holds(&mut theirs)).await.is_err(), "it got the lock");
    assert_eq!(etcd.release(&held).await.unwrap(), Release::Released);
    holds(&mut theirs).await;
    assert!(etcd.try_acquire(&renewed(NAME, 30)).await.unwrap().is_none());
}

/// It is killed and says nothing: its lease of 3 s ends, and ours is the next turn.
#[tokio::test]
async fn a_killed_etcdctl_frees_us_within_its_lease() {
    let cluster = one();
    let etcd = ours(&cluster);
    let mut theirs = etcdctl(&cluster);
    holds(&mut theirs).await;
    let waiter = Waiter::start(&etcd, renewed(NAME, 30)).await;
    theirs.kill().await.unwrap();
    let grant = waiter.granted().await;
    assert_eq!(etcd.release(&grant).await.unwrap(), Release::Released);
}

/// First come, first served, whoever one is.
#[tokio::test]
async fn the_queue_is_one_for_both() {
    let cluster = one();
    let (first, third) = (ours(&cluster), ours(&cluster));
    let admin = admin(&cluster).await;
    let held = take(&first, &renewed(NAME, 30)).await;
    let mut second = etcdctl(&cluster);
    eventually("it queues", async || keys(&admin, "/it/one/").await.len() == 2).await;
    let waiter = Waiter::start(&third, renewed(NAME, 30)).await;
    assert_eq!(first.release(&held).await.unwrap(), Release::Released);
    holds(&mut second).await;
    assert!(!waiter.wait.is_finished());
    second.kill().await.unwrap();
    let grant = waiter.granted().await;
    assert_eq!(third.release(&grant).await.unwrap(), Release::Released);
}
