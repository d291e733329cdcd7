//! Thousands of names.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Backend, Lease, Locks, Moment, Options, Release, Stop};
use lock_redis::{Token, TokenOptions};
use lock_testkit::RedisServer;
use lock_testkit::fault::{Direction, Segments};

use crate::ground::{Ground, ROOM, claim, millis, open, take, until_within};

/// How long thousands of waiters may take, on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(300);

/// A client whose requests may wait for thousands that were sent before.
async fn patient(server: &RedisServer) -> Arc<dyn Backend> {
    Arc::new(Token::new(open(&server.url(), ROOM).await, TokenOptions::new()).await.unwrap())
}

async fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(LIMIT, what, condition).await;
}

/// Answers must not be mixed up while thousands of confirmations come in: the reconnect of the redis crate itself does that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_command_gets_the_reply_of_another_while_5000_channels_are_subscribed_anew() {
    let ground = Ground::new();
    let holder = patient(&ground.server).await;
    let backend = ground.token(Duration::from_secs(30)).await;
    let names: Vec<_> = (0..5_000).map(|number| format!("w{number}")).collect();
    join_all(names.iter().map(|name| take(&*holder, name, Duration::from_secs(300)))).await;

    let stop = Stop::new();
    let waiters: Vec<_> = names
        .iter()
        .map(|name| {
            let (backend, claim, stop) = (Arc::clone(&backend), claim(name, millis(60_000)), stop.clone());
            tokio::spawn(async move {
                loop {
                    // A try that was under way when the connection was cut fails; the driver, too, would wait again.
                    if let Ok(outcome) = backend.acquire(&claim, &stop).await {
                        break outcome;
                    }
                }
            })
        })
        .collect();
    let channels = || ground.server.command::<Vec<String>>(&["PUBSUB", "CHANNELS"]).unwrap().len();
    until("all listen", || channels() == names.len()).await;

    // Each lock that is looked at has a holder and a token that no other has.
    let mut known = Vec::new();
    for number in 0..50 {
        let grant = take(&*holder, &format!("k{number}"), Duration::from_secs(300)).await;
        known.push((format!("{:032x}", grant.claim.id.bits()), grant));
    }
    let look = async || {
        for (holder, grant) in &known {
            // A lost connection is an error; an answer must be the right one.
            if let Ok(found) = backend.inspect(&grant.claim.key).await {
                assert_eq!(found.holder.as_ref(), Some(holder));
                assert_eq!(found.fencing_token, grant.fencing_token);
            }
        }
    };
    look().await;
    ground.proxy.set_segments(Direction::ToClient, Some(Segments::of(61)));
    for _ in 0..3 {
        ground.proxy.cut_connections();
        let limit = Moment::now().saturating_add(LIMIT);
        look().await;
        while channels() < names.len() {
            look().await;
            assert!(!limit.remaining().is_zero(), "{} of {} are subscribed", channels(), names.len());
        }
        look().await;
    }
    ground.proxy.set_segments(Direction::ToClient, None);
    stop.fire();
    for waiter in waiters {
        // Nobody was granted what another holds.
        assert!(waiter.await.unwrap().is_none());
    }
    until("nobody listens", || channels() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_names_held_waited_for_and_dropped_leave_nothing() {
    let ground = Ground::new();
    let names: Vec<_> = (0..10_000).map(|number| format!("n{number}")).collect();
    let (holding, waiting) = (patient(&ground.server).await, patient(&ground.server).await);
    let ttl = Duration::from_secs(120);
    let options = || Options::new().with_lease(Lease::renewed(ttl)).with_unavailable_after(LIMIT);
    let holders = Locks::with_options(Arc::clone(&holding), options());
    let waiters = Locks::with_options(Arc::clone(&waiting), options());
    // The keepers and the connections have started.
    drop(holders.lock("first").unwrap().acquire().await.unwrap());
    drop(waiters.lock("second").unwrap().acquire().await.unwrap());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    until("the first two are free", || !ground.exists("hasp:first") && !ground.exists("hasp:second")).await;
    let tasks_before = tasks();

    let guards: Vec<_> =
        join_all(names.iter().map(async |name| holders.lock(name).unwrap().acquire().await.unwrap())).await;
    let waits: Vec<_> = names
        .iter()
        .map(|name| {
            let lock = waiters.lock(name).unwrap();
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    let channels = || ground.server.command::<Vec<String>>(&["PUBSUB", "CHANNELS"]).unwrap().len();
    until("all listen", || channels() == names.len()).await;
    for wait in &waits {
        wait.abort();
    }
    for wait in waits {
        assert!(wait.await.is_err_and(|error| error.is_cancelled()));
    }
    until("nobody listens", || channels() == 0).await;
    for guard in guards {
        assert!(guard.is_held());
        drop(guard);
    }
    let held = || ground.server.command::<Vec<String>>(&["KEYS", "hasp:*"]).unwrap().len();
    until("no lock is left", || held() == 0).await;
    until("no task is left", || tasks() <= tasks_before).await;
    // What is left are the last fencing tokens, and each of them ends by itself.
    let left: Vec<String> = ground.server.command(&["KEYS", "*"]).unwrap();
    assert!(left.iter().all(|key| key.starts_with("hasp-fence:{hasp:")));
    assert!(left.iter().step_by(501).all(|key| (1..=86_400_000 + 120_000).contains(&ground.pttl(key))));

    let again = waiters.lock(&names[0]).unwrap().acquire().await.unwrap();
    assert_eq!(again.release().await.unwrap(), Release::Released);
}
