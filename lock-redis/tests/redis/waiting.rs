//! How waiters are woken, and what they cost.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Backend, Lease, Locks, Moment, Options, Release, Stop, WakeUp};
use lock_redis::{Config, Connection, Token, TokenOptions};
use lock_testkit::fault::Request;

use crate::ground::{Ground, ROOM, claim, millis, renewed, soon, take, until};

/// How many clients listen on the channel of a token lock.
pub(crate) fn listeners(ground: &Ground, name: &str) -> u64 {
    let channel = format!("hasp-released:{{hasp:{name}}}");
    ground.server.command::<(String, u64)>(&["PUBSUB", "NUMSUB", &channel]).unwrap().1
}

#[tokio::test]
async fn a_waiter_whose_connection_is_killed_still_acquires() {
    let ground = Ground::new();
    let holder = ground.direct().await;
    let waiting = ground.token(ROOM).await;
    let grant = take(&*holder, "a", millis(60_000)).await;
    let locks = renewed(&waiting, millis(5_000));
    let waiter = tokio::spawn(async move { locks.lock("a").unwrap().acquire().await });
    until("it listens", || listeners(&ground, "a") == 1).await;
    let killed: u64 = ground.server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
    assert_eq!(killed, 1);
    until("it listens again", || listeners(&ground, "a") == 1).await;
    assert_eq!(holder.release(&grant).await.unwrap(), Release::Released);
    drop(soon(waiter).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_release_before_the_subscription_is_not_slept_through() {
    let ground = Ground::new();
    let holder = ground.direct().await;
    let waiting = ground.token(Duration::from_secs(60)).await;
    let grant = take(&*holder, "a", Duration::from_secs(300)).await;
    let subscribing = ground.proxy.when(Request::command("SUBSCRIBE")).hold_request();
    let locks = renewed(&waiting, millis(5_000));
    let waiter = tokio::spawn(async move { locks.lock("a").unwrap().acquire().await });
    soon(subscribing.seen()).await;
    assert_eq!(holder.release(&grant).await.unwrap(), Release::Released);
    subscribing.release();
    drop(soon(waiter).await.unwrap().unwrap());
}

#[tokio::test]
async fn the_end_of_a_crashed_holders_lease_is_noticed() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let ttl = millis(100);
        let mut late = Vec::new();
        for _ in 0..5 {
            take(&*backend, "a", ttl).await;
            let ended_by = Moment::now().saturating_add(ttl);
            let guard = soon(renewed(&backend, millis(5_000)).lock("a").unwrap().acquire()).await.unwrap();
            late.push(Moment::now().saturating_duration_since(ended_by));
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        late.sort();
        // By the floor alone it would be half a second or more.
        assert!(late[2] < millis(350), "{late:?}");
    }
}

#[tokio::test]
async fn an_idle_waiter_sends_fewer_than_two_commands_a_second() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        assert_eq!(backend.guarantees().wake_up, WakeUp::Push);
        take(&*backend, "a", Duration::from_secs(300)).await;
        let stop = Stop::new();
        let waiter = tokio::spawn({
            let (backend, stop) = (Arc::clone(&backend), stop.clone());
            async move { backend.acquire(&claim("a", millis(5_000)), &stop).await }
        });
        until("it waits", || stop.is_waiting()).await;
        tokio::time::sleep(millis(300)).await;
        let before: u64 = ground.proxy.counts().values().sum();
        let began = Moment::now();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let sent = ground.proxy.counts().values().sum::<u64>() - before;
        let seconds = Moment::now().saturating_duration_since(began).as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a small count")]
        let rate = sent as f64 / seconds;
        assert!(rate < 2.0, "{rate} a second");
        // It has not fallen asleep altogether: a lost message costs no more than the floor.
        assert!(sent >= 3, "{sent}");
        stop.fire();
        assert!(soon(waiter).await.unwrap().unwrap().is_none());
    }
}

#[tokio::test]
async fn nothing_is_sent_after_a_thousand_cycles() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let ttl = millis(300);
        let locks = renewed(&backend, ttl);
        for number in 0..1_000 {
            let guard = locks.lock(format!("{}", number % 7)).unwrap().acquire().await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        let monitor = ground.server.monitor().unwrap();
        tokio::time::sleep(ttl * 3).await;
        assert_eq!(monitor.commands().unwrap(), []);
        assert!(locks.lock("a").unwrap().try_acquire().await.unwrap().is_some());
    }
}

#[tokio::test]
async fn one_subscription_serves_all_waiters_of_a_key_and_goes_with_the_last() {
    let ground = Ground::new();
    let backend = ground.token(ROOM).await;
    take(&*backend, "a", millis(60_000)).await;
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let backend = Arc::clone(&backend);
            tokio::spawn(async move { backend.acquire(&claim("a", millis(500)), &Stop::new()).await.map(|_| ()) })
        })
        .collect();
    until("they listen", || listeners(&ground, "a") == 1).await;
    let mut left = waiters.len();
    for waiter in waiters {
        assert_eq!(listeners(&ground, "a"), 1, "{left} wait");
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
        left -= 1;
    }
    until("nobody listens", || listeners(&ground, "a") == 0).await;
    assert_eq!(ground.proxy.count("SUBSCRIBE"), 2, "one for the probe and one for all of them");
}

#[tokio::test]
async fn a_waiter_is_woken_by_push_also_on_a_users_manager_with_its_pushes() {
    let ground = Ground::new();
    let (sender, pushes) = tokio::sync::mpsc::unbounded_channel();
    let client = redis::Client::open(format!("{}?protocol=resp3", ground.server.url())).unwrap();
    let config = redis::aio::ConnectionManagerConfig::new().set_push_sender(sender);
    let manager = client.get_connection_manager_with_config(config).await.unwrap();
    let connection = Connection::from_manager_with_pushes(manager, pushes, Config::new()).await.unwrap();
    let backend = Token::new(connection, TokenOptions::new()).await.unwrap();
    let hand_over = median_hand_over(&ground, Arc::new(backend)).await;
    assert!(hand_over < millis(300), "{hand_over:?}");
}

#[tokio::test]
async fn a_bare_manager_and_a_pool_poll_and_say_so() {
    let ground = Ground::new();
    let config = Config::new().with_poll_interval(millis(20));
    let manager = redis::Client::open(ground.server.url()).unwrap().get_connection_manager().await.unwrap();
    let pool = deadpool_redis::Config::from_url(ground.server.url());
    let pool = pool.create_pool(Some(deadpool_redis::Runtime::Tokio1)).unwrap();
    for connection in [
        Connection::from_manager(manager, config.clone()).await.unwrap(),
        Connection::from_pool(pool, config).await.unwrap(),
    ] {
        let backend = Token::new(connection, TokenOptions::new()).await.unwrap();
        assert_eq!(backend.guarantees().wake_up, WakeUp::Poll);
        // Its releases tell those who do listen.
        let polling: Arc<dyn Backend> = Arc::new(backend);
        let listening = ground.direct().await;
        let grant = take(&*polling, "a", millis(60_000)).await;
        let locks = renewed(&listening, millis(5_000));
        let waiter = tokio::spawn(async move { locks.lock("a").unwrap().acquire().await });
        until("it listens", || listeners(&ground, "a") == 1).await;
        assert_eq!(polling.release(&grant).await.unwrap(), Release::Released);
        let guard = soon(waiter).await.unwrap().unwrap();
        let waiting = renewed(&polling, millis(5_000));
        let waiter = tokio::spawn(async move { waiting.lock("a").unwrap().acquire().await });
        tokio::time::sleep(millis(60)).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        drop(soon(waiter).await.unwrap().unwrap());
        until("it is free again", || !ground.exists("hasp:a")).await;
    }
}

/// The median time from a release to the grant of one waiter; without a push it is half the floor or more.
pub(crate) async fn median_hand_over(ground: &Ground, backend: Arc<dyn Backend>) -> Duration {
    let holder = ground.direct().await;
    let options = Options::new().with_lease(Lease::renewed(Duration::from_secs(20)));
    let locks = Locks::with_options(backend, options);
    let mut times = Vec::new();
    for _ in 0..9 {
        let grant = take(&*holder, "h", millis(60_000)).await;
        let lock = locks.lock("h").unwrap();
        let waiter = tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            (Moment::now(), guard)
        });
        until("it listens", || listeners(ground, "h") == 1).await;
        // Its second try is over, and it sleeps.
        tokio::time::sleep(millis(50)).await;
        let released_at = Moment::now();
        assert_eq!(holder.release(&grant).await.unwrap(), Release::Released);
        let (granted_at, guard) = soon(waiter).await.unwrap();
        times.push(granted_at.saturating_duration_since(released_at));
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    times.sort();
    times[times.len() / 2]
}
