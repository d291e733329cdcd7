//! Servers that fail.

use std::sync::Arc;

use lock_core::{ErrorKind, Lease, Moment, Options, Release, Stop};
use lock_testkit::ZooKeeperEnsemble;
use lock_zookeeper::Config;
use tokio::time::timeout;

use crate::ground::{Ground, ROOM, claim, eventually, locks, millis, open, take};

/// Whatever becomes of each lock, nobody else has it before its holder's deadline.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_killed_costs_a_lock_at_most_on_time() {
    let ensemble = ZooKeeperEnsemble::start(3).unwrap();
    let (ours, theirs) = (open(&ensemble.hosts(), Config::new()).await, open(&ensemble.hosts(), Config::new()).await);
    let locks = locks(&ours);
    let mut guards = Vec::new();
    for place in 0..10 {
        guards.push(locks.lock(format!("leader-{place}")).unwrap().acquire().await.unwrap());
    }
    ensemble.kill(ensemble.leader().unwrap()).unwrap();
    eventually("there is a leader again", async || ensemble.leader().is_some()).await;
    for guard in guards {
        let free = async || match theirs.try_acquire(&claim(guard.key().as_str())).await {
            Ok(Some(_)) => {
                assert!(Moment::now() >= guard.deadline(), "granted to another before the holder's deadline");
                true
            }
            Ok(None) => guard.is_held(),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                false
            }
        };
        eventually("it is held, or another's", free).await;
    }
    let grant = take(&theirs, "after").await;
    assert_eq!(theirs.release(&grant).await.unwrap(), Release::Released);
}

/// The follower answers the holder's reads although the leader has ended the session: only `sync` shows it.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_is_cut_off_does_not_keep_a_lock_alive() {
    let ensemble = ZooKeeperEnsemble::builder(3).links().start().unwrap();
    let leader = ensemble.leader().unwrap();
    let follower = (leader + 1) % 3;
    let ours = open(&ensemble.addr(follower).to_string(), Config::new()).await;
    let theirs = open(&ensemble.addr(leader).to_string(), Config::new()).await;
    let guard = locks(&ours).lock("cut-off").unwrap().acquire().await.unwrap();
    let renewed = guard.deadline();
    eventually("it is renewed", async || guard.deadline() > renewed).await;

    ensemble.isolate(follower);
    let grant = timeout(ROOM, theirs.acquire(&claim("cut-off"), &Stop::new())).await.expect("the session ends");
    let granted = Moment::now();
    assert!(granted >= guard.deadline(), "granted to another before the holder's deadline");
    assert!(!guard.is_held());
    assert!(grant.unwrap().unwrap().fencing_token > guard.fencing_token());
    ensemble.rejoin(follower);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nothing_is_granted_and_everything_ends_in_bounded_time() {
    let ensemble = ZooKeeperEnsemble::start(3).unwrap();
    // Enough for what still works on a busy machine.
    let config = Config::new().with_request_limit(millis(2_000)).with_connect_limit(millis(2_000));
    let ours = open(&ensemble.hosts(), config).await;
    let options = Options::new().with_unavailable_after(millis(2_000));
    let locks = lock_core::Locks::with_options(Arc::clone(&ours), options);
    let guard = locks.lock("held").unwrap().acquire().await.unwrap();
    for member in 0..2 {
        ensemble.kill(member).unwrap();
    }
    let bounded = async |what: &str, call: std::pin::Pin<Box<dyn Future<Output = lock_core::Result<()>> + Send>>| {
        let error = timeout(ROOM, call).await.unwrap_or_else(|_| panic!("{what} has not ended")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {error}");
    };
    let lock = locks.lock("new").unwrap();
    bounded("acquire", Box::pin(async move { lock.acquire().await.map(drop) })).await;
    timeout(ROOM, guard.lost()).await.expect("it is lost on time");
    let key = guard.key().clone();
    bounded("release", Box::pin(async move { guard.release().await.map(drop) })).await;
    for what in ["inspect", "list", "force_release", "abandon", "try_acquire", "wait"] {
        let (ours, key) = (Arc::clone(&ours), key.clone());
        let call = async move {
            match what {
                "inspect" => ours.inspect(&key).await.map(drop),
                "list" => ours.list("").await.map(drop),
                "force_release" => ours.force_release(&key).await.map(drop),
                "abandon" => ours.abandon(&claim("gone")).await.map(drop),
                "try_acquire" => ours.try_acquire(&claim("gone")).await.map(drop),
                _ => ours.acquire(&claim("gone"), &Stop::new()).await.map(drop),
            }
        };
        bounded(what, Box::pin(call)).await;
    }
    // With a session that has ended there is nothing to say goodbye to.
    drop(timeout(ROOM, ours.close()).await.expect("close ends"));
}

/// A server that stands still longer than the lease and shorter than the session.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_is_a_loss_on_time() {
    let ground = Ground::new();
    let ours = ground.direct().await;
    let lock = locks(&ours).lock("still").unwrap().lease(Lease::renewed(millis(1_000)));
    let guard = lock.acquire().await.unwrap();
    ground.ensemble.stop(0).unwrap();
    timeout(ROOM, guard.lost()).await.expect("it is lost on time");
    assert!(Moment::now() >= guard.deadline());
    ground.ensemble.cont(0).unwrap();
    let again = timeout(ROOM, lock.acquire()).await.unwrap().unwrap();
    assert_eq!(again.release().await.unwrap(), Release::Released);
}
