//! Wrong URLs and options, other libraries' locks, labels.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Backend, ErrorKind, Lease, Locks, Options, Release};
use lock_redis::{Config, Connection};
use lock_redlock::{Redlock, RedlockOptions};
use lock_testkit::{RedisNodes, RedisServer};

use crate::ground::{claim, millis, take};

async fn refused(urls: &[&str], options: RedlockOptions) -> lock_core::Error {
    let error = Redlock::open(urls, Config::new(), options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    error
}

#[tokio::test]
async fn what_cannot_work_is_refused_at_once() {
    let none = refused(&[], RedlockOptions::new()).await;
    assert!(none.to_string().contains("there is no node"), "{none}");
    let twice = refused(&["redis://a", "redis://b", "redis://a"], RedlockOptions::new()).await;
    assert!(twice.to_string().contains("a URL is there twice"), "{twice}");
    let zero = refused(&["redis://a"], RedlockOptions::new().with_node_limit(Duration::ZERO)).await;
    assert!(zero.to_string().contains("`node_limit`"), "{zero}");
    refused(&["http://a"], RedlockOptions::new()).await;
}

#[tokio::test]
async fn a_node_that_refuses_the_password_is_an_error_even_if_the_others_do() {
    let (open, locked) = (RedisNodes::start(2).unwrap(), RedisServer::builder().password("secret").start().unwrap());
    let mut urls = open.urls();
    urls.push(format!("redis://:wrong@{}", locked.addr()));
    let error = Redlock::connect(urls).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    let redlock = Redlock::connect([locked.url()]).await.unwrap();
    assert!(!format!("{redlock:?}").contains("secret"), "{redlock:?}");
}

#[tokio::test]
async fn one_node_is_enough_and_connections_of_the_program_serve() {
    let nodes = RedisNodes::start(2).unwrap();
    for count in [1, 2] {
        let mut connections = Vec::new();
        for node in &nodes[..count] {
            connections.push(Connection::open(&node.url(), Config::new()).await.unwrap());
        }
        let redlock = Redlock::new(connections, RedlockOptions::new()).unwrap();
        let grant = take(&redlock, "a", millis(5_000)).await;
        assert!(redlock.try_acquire(&claim("a", millis(5_000))).await.unwrap().is_none());
        assert_eq!(redlock.release(&grant).await.unwrap(), Release::Released);
    }
}

/// A lock of another library, under its own name: a plain string, as node-redlock, redsync and redis-py write it.
#[tokio::test]
async fn locks_of_other_libraries_exclude_ours_and_the_reverse() {
    let nodes = RedisNodes::start(3).unwrap();
    let options = RedlockOptions::new().with_prefix("");
    let redlock = Redlock::open(&nodes.urls(), Config::new(), options).await.unwrap();
    for node in &nodes[..2] {
        node.command::<()>(&["SET", "a", "theirs", "NX", "PX", "60000"]).unwrap();
    }
    assert!(redlock.try_acquire(&claim("a", millis(5_000))).await.unwrap().is_none());
    let seen = redlock.inspect(&claim("a", millis(5_000)).key).await.unwrap();
    assert_eq!(seen.holder.as_deref(), Some("theirs"));
    assert_eq!(redlock.list("").await.unwrap_err().kind(), ErrorKind::Unsupported);

    let _ours = take(&redlock, "b", millis(60_000)).await;
    let taken = |node: &RedisServer| node.command::<Option<String>>(&["SET", "b", "x", "NX", "PX", "1000"]).unwrap();
    assert!(nodes.iter().filter(|node| taken(node).is_some()).count() <= 1);
}

#[tokio::test]
async fn a_holder_can_be_seen_with_its_label() {
    let nodes = RedisNodes::start(3).unwrap();
    let backend = Arc::new(Redlock::connect(nodes.urls()).await.unwrap());
    let options = Options::new().with_label("web-1:4711").with_lease(Lease::fixed(millis(30_000)));
    let locks = Locks::with_options(Arc::clone(&backend) as Arc<dyn Backend>, options);
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let seen = backend.inspect(guard.key()).await.unwrap();
    assert_eq!(seen.label.as_deref(), Some("web-1:4711"));
    assert!(seen.remaining.is_some_and(|left| left <= millis(30_000) && left > millis(20_000)), "{seen:?}");
    assert_eq!(backend.list("").await.unwrap(), [guard.key().clone()]);
}
