//! Sessions that are silent, that end, and that somebody else ends (S56, S59).

use std::sync::Arc;

use lock_core::{Backend, Effect, ErrorKind, Lease, LossReason, Moment, Release, Stop};
use lock_testkit::ZooKeeperEnsemble;
use lock_testkit::fault::Proxy;
use lock_zookeeper::{Config, ZooKeeper};
use tokio::time::{sleep, timeout};
use zookeeper_client::Client;

use crate::ground::{Ground, ROOM, SESSION, claim, eventually, locks, make_path, millis, nodes, open, take};

/// A twin of the session, with the same id and password, closes it while the holder is cut off.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_another_client_closed_is_a_loss_at_once() {
    // The deadline is far away and nobody renews, so the loss can only come from the server's word.
    let ensemble = ZooKeeperEnsemble::builder(1).tick(millis(2_000)).start().unwrap();
    let proxy = Proxy::start_opaque(ensemble.addr(0)).unwrap();
    let connector = || Client::connector().with_session_timeout(millis(40_000));
    let twin = connector().with_detached().connect(&ensemble.hosts()).await.unwrap().into_session();
    let ours =
        ZooKeeper::from_connector(connector().with_session(twin.clone()), proxy.addr().to_string(), Config::new());
    let ours: Arc<dyn Backend> = Arc::new(ours.await.unwrap());
    let lock = locks(&ours).lock("twin").unwrap().lease(Lease::fixed(millis(20_000)));
    let guard = lock.acquire().await.unwrap();

    proxy.refuse_connections();
    proxy.cut_connections();
    let twin = connector().with_session(twin).connect(&ensemble.hosts()).await.unwrap();
    let mut states = twin.state_watcher();
    drop(twin);
    while !states.peek_state().is_terminated() {
        states.changed().await;
    }
    proxy.accept_connections().unwrap();
    assert_eq!(timeout(ROOM, guard.lost()).await.unwrap(), LossReason::NotHeld);
    assert!(!guard.is_held());
}

/// The client library would keep it for the next connection.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_while_there_is_no_connection_is_never_sent() {
    let ground = Ground::new();
    let look = ground.look().await;
    let config = Config::new().with_request_limit(millis(300));
    let ours = open(&ground.proxy.addr().to_string(), config).await;
    make_path(&ours, "never").await;
    ground.proxy.refuse_connections();
    ground.proxy.cut_connections();
    // The first may be on its way when the connection breaks.
    let told = async || ours.try_acquire(&claim("noticed")).await.unwrap_err().effect() == Effect::None;
    eventually("the client notices", told).await;
    let error = ours.try_acquire(&claim("never")).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None));
    assert!(error.to_string().contains("no connection for 300ms"), "{error}");
    ground.proxy.accept_connections().unwrap();
    // In the same session, so what was asked before would have come before.
    let back = claim("back");
    eventually("it is back", async || ours.try_acquire(&back).await.is_ok_and(|grant| grant.is_some())).await;
    assert!(nodes(&look, "/hasp/never").await.is_empty());
}

/// A silence that is shorter than the lease costs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_of_a_quarter_of_the_session_costs_no_lock() {
    let ground = Ground::new();
    let (ours, theirs) = (ground.proxied().await, ground.direct().await);
    let guard = locks(&ours).lock("quarter").unwrap().acquire().await.unwrap();
    ground.proxy.black_hole();
    sleep(SESSION / 4).await;
    ground.proxy.heal();
    let before = guard.deadline();
    eventually("it is renewed", async || guard.deadline() > before).await;
    assert!(guard.is_held());
    assert!(theirs.try_acquire(&claim("quarter")).await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Half the session is what a lease may promise: the lock is lost on time, by the holder's own clock. The session lives on,
/// and with it the node, until the keeper gives it back.
#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_of_half_the_session_is_a_loss_on_time_and_the_session_goes_on() {
    let ground = Ground::new();
    let (ours, theirs, look) = (ground.proxied().await, ground.direct().await, ground.look().await);
    let guard = locks(&ours).lock("half").unwrap().acquire().await.unwrap();
    let session = owner(&look, "half").await;
    ground.proxy.black_hole();
    let loss = timeout(ROOM, guard.lost()).await.unwrap();
    assert!(Moment::now() >= guard.deadline());
    assert_eq!(loss, LossReason::Expired);
    assert_eq!(nodes(&look, "/hasp/half").await.len(), 1, "the session outlives the lease");
    ground.proxy.heal();
    let (_, next) = take_when_free(&theirs, "half").await;
    assert!(next >= guard.deadline());
    drop(take(&ours, "half-after").await);
    assert_eq!(owner(&look, "half-after").await, session, "a session that lives is used again");
}

/// Just after a silence an answer proves little; a fixed lease is handed out only when it is certain to last.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_silence_a_grant_waits_until_the_session_is_certain() {
    let ground = Ground::new();
    let (ours, look) = (ground.proxied().await, ground.look().await);
    let mut long = claim("silence");
    long.lease = Lease::fixed(SESSION / 2);
    // On a busy machine the session may end meanwhile, and a new one has no silence behind it.
    for _ in 0..5 {
        let before = take(&ours, "silence").await;
        let session = owner(&look, "silence").await;
        assert_eq!(ours.release(&before).await.unwrap(), Release::Released);
        ground.proxy.black_hole();
        sleep(SESSION * 5 / 8).await;
        let healed = Moment::now();
        ground.proxy.heal();
        let grant = loop {
            match ours.try_acquire(&long).await {
                Ok(grant) => break grant.expect("a free lock is granted"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        };
        let survived = owner(&look, "silence").await == session;
        assert_eq!(grant.ttl, SESSION / 2);
        assert_eq!(ours.release(&grant).await.unwrap(), Release::Released);
        if survived {
            assert!(grant.sent_at.saturating_duration_since(healed) >= SESSION / 4, "granted on the first answer");
            return;
        }
    }
    panic!("no session survived a silence that was shorter than its timeout");
}

/// Nobody asked anything for longer than the session's timeout, and yet there was no silence.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_session_grants_at_once() {
    let ground = Ground::new();
    let ours = ground.direct().await;
    make_path(&ours, "idle").await;
    // On a busy machine everything may take long, but not every time.
    for _ in 0..5 {
        sleep(SESSION + millis(200)).await;
        let before = Moment::now();
        let grant = take(&ours, "idle").await;
        assert_eq!(ours.release(&grant).await.unwrap(), Release::Released);
        if grant.sent_at.saturating_duration_since(before) < SESSION / 4 {
            return;
        }
    }
    panic!("it waited for a second answer each time");
}

/// The server ends the session; the holder has known for long that it lost; and later claims have a new session.
#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_of_twice_the_session_is_a_loss_on_time_and_a_new_session_follows() {
    let ground = Ground::new();
    let (ours, theirs, look) = (ground.proxied().await, ground.direct().await, ground.look().await);
    let locks = locks(&ours);
    let guard = locks.lock("twice").unwrap().acquire().await.unwrap();
    let session = owner(&look, "twice").await;
    ground.proxy.black_hole();
    let began = Moment::now();
    let (_, next) = take_when_free(&theirs, "twice").await;
    assert!(!guard.is_held() && next >= guard.deadline(), "granted to another before the holder's deadline");
    assert_eq!(guard.lost().await, LossReason::Expired);
    sleep(began.saturating_add(SESSION * 2).remaining()).await;
    ground.proxy.heal();

    let later = locks.lock("later").unwrap().acquire().await.unwrap();
    assert!(later.is_held());
    assert_ne!(owner(&look, "later").await, session);
    assert_eq!(guard.release().await.unwrap(), Release::NotHeld);
    assert_eq!(later.release().await.unwrap(), Release::Released);
    // The zombie's release left the new holder alone.
    assert_eq!(nodes(&look, "/hasp/twice").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_with_its_data_costs_no_lock() {
    let ground = Ground::new();
    let (ours, theirs) = (ground.direct().await, ground.direct().await);
    let held = take(&ours, "restart").await;
    ground.ensemble.restart(0).unwrap();
    let seen = async || theirs.inspect(&held.claim.key).await.is_ok_and(|seen| seen.held);
    eventually("the lock is seen again", seen).await;
    let renewed = async || ours.renew(&[lock_core::Renew::new(&held, held.ttl)]).await[0].is_ok();
    eventually("it is renewed", renewed).await;
    assert_eq!(ours.release(&held).await.unwrap(), Release::Released);
}

/// The process ends its backend while others wait: its session ends with it, not with a timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_is_dropped_ends_its_session() {
    let ground = Ground::new();
    let (ours, look) = (ground.direct().await, ground.look().await);
    let held = take(&ours, "dropped").await;
    let began = Moment::now();
    drop((held, ours));
    eventually("the node goes", async || nodes(&look, "/hasp/dropped").await.is_empty()).await;
    assert!(Moment::now().saturating_duration_since(began) < SESSION / 2, "it went with the timeout of the session");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_lease_is_half_the_session_and_a_longer_fixed_one_is_refused() {
    let ground = Ground::new();
    let ours = ground.direct().await;
    let grant = take(&ours, "renewed").await;
    assert_eq!(grant.ttl, SESSION / 2);
    for (ttl, granted) in [(SESSION / 2, true), (SESSION / 2 + millis(1), false)] {
        let mut claim = claim("fixed");
        claim.lease = Lease::fixed(ttl);
        match ours.try_acquire(&claim).await {
            Ok(grant) => assert!(granted && ours.release(&grant.unwrap()).await.unwrap() == Release::Released),
            Err(error) => {
                assert!(!granted, "{error}");
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.to_string().contains("half of the session's timeout"), "{error}");
            }
        }
    }
    // Nor is it extended beyond that.
    let locks = locks(&ours);
    let guard = locks.lock("extended").unwrap().lease(Lease::fixed(SESSION / 4)).acquire().await.unwrap();
    let error = guard.extend(SESSION).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let guard = locks.lock("extended-less").unwrap().lease(Lease::fixed(SESSION / 4)).acquire().await.unwrap();
    let before = guard.deadline();
    guard.extend(SESSION / 2).await.unwrap();
    assert!(guard.deadline() > before);
}

/// Waits in line for a lock; also says when it was granted.
async fn take_when_free(backend: &Arc<dyn Backend>, name: &str) -> (lock_core::Grant, Moment) {
    let stop = Stop::new();
    let grant = timeout(ROOM, backend.acquire(&claim(name), &stop)).await.expect("it is free soon");
    (grant.expect("the server runs").expect("nobody stopped it"), Moment::now())
}

/// The session that keeps the first node of a lock.
async fn owner(look: &Client, name: &str) -> i64 {
    let path = format!("/hasp/{name}");
    let first = nodes(look, &path).await.into_iter().min().expect("the lock is held");
    look.check_stat(&format!("{path}/{first}")).await.expect("the server runs").expect("it is held").ephemeral_owner
}
