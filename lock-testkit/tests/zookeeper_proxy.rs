//! The faults of the proxy in front of a real ZooKeeper.

#![allow(clippy::unwrap_used, reason = "the functions below are for tests only")]

use std::time::Duration;

use lock_testkit::ZooKeeperEnsemble;
use lock_testkit::fault::{Armed, Direction, Proxy, Request, Segments};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, EventType};

/// The longest that anything may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Long enough for anything to arrive that is not held.
const A_WHILE: Duration = Duration::from_millis(200);

const SESSION: Duration = Duration::from_secs(4);

const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const TICKET: CreateOptions<'static> = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());

struct Ground {
    ensemble: ZooKeeperEnsemble,
    proxy: Proxy,
}

impl Ground {
    fn start() -> Self {
        let ensemble = ZooKeeperEnsemble::start(1).unwrap();
        let proxy = Proxy::start_zookeeper(ensemble.addr(0)).unwrap();
        Self { ensemble, proxy }
    }

    /// A client whose connections go through the proxy.
    async fn client(&self) -> Client {
        connect(&self.proxy.addr().to_string()).await
    }

    /// A client that goes past the proxy.
    async fn direct(&self) -> Client {
        connect(&self.ensemble.hosts()).await
    }
}

async fn connect(hosts: &str) -> Client {
    within(Client::connector().with_session_timeout(SESSION).connect(hosts)).await.unwrap()
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, what).await.expect("not within 30 s")
}

async fn seen(armed: &Armed) {
    within(armed.seen()).await;
}

async fn exists(client: &Client, path: &str) -> bool {
    within(client.check_stat(path)).await.unwrap().is_some()
}

/// Repeats a read that a cut connection may have lost.
async fn again<T>(mut read: impl AsyncFnMut() -> Result<T, Error>) -> T {
    within(async {
        loop {
            match read().await {
                Ok(value) => return value,
                Err(Error::ConnectionLoss) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_create_whose_reply_is_lost_has_made_the_node_in_the_session_that_goes_on() {
    let ground = Ground::start();
    let client = ground.client().await;
    let session = client.session_id();
    within(client.create("/lock", &[], &PERSISTENT)).await.unwrap();
    let lost = ground.proxy.when(Request::command("create2").with_argument("/lock/n-")).lose_reply();
    let error = within(client.create("/lock/n-", b"a", &TICKET)).await.unwrap_err();
    assert_eq!(error, Error::ConnectionLoss);
    assert_eq!(lost.times_seen(), 1);

    let children = again(async || client.list_children("/lock").await).await;
    assert_eq!(children, ["n-0000000000"]);
    let (_, stat) = within(client.get_data("/lock/n-0000000000")).await.unwrap();
    assert_eq!((client.session_id(), stat.ephemeral_owner), (session, session.0));
    assert_eq!(ground.proxy.count("connect"), 2);
}

#[tokio::test]
async fn a_create_is_held_by_its_path_and_lands_although_its_client_has_gone() {
    let ground = Ground::start();
    let (client, direct) = (ground.client().await, ground.direct().await);
    for round in 0..5 {
        let path = format!("/a{round}");
        let client = if round == 0 { client.clone() } else { ground.client().await };
        let held = ground.proxy.when(Request::command("create2").with_argument(&path)).hold_request();
        assert!(within(client.create(&format!("{path}b"), &[], &PERSISTENT)).await.is_ok());
        let create = path.clone();
        let call = tokio::spawn(async move { client.create(&create, &[], &PERSISTENT).await.map(drop) });
        seen(&held).await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!exists(&direct, &path).await);
        held.release();
        within(async {
            while !exists(&direct, &path).await {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_held_reply_is_of_the_request_with_its_number() {
    let ground = Ground::start();
    let client = ground.client().await;
    let held = ground.proxy.when(Request::command("exists").with_argument("/b")).hold_reply();
    let [a, b, c] = ["/a", "/b", "/c"].map(|path| tokio::spawn(client.check_stat(path)));
    seen(&held).await;
    assert!(within(a).await.unwrap().unwrap().is_none(), "what came before is delivered");
    tokio::time::sleep(A_WHILE).await;
    assert!(!b.is_finished() && !c.is_finished());
    held.release();
    assert!(within(b).await.unwrap().unwrap().is_none());
    assert!(within(c).await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn a_cut_request_is_not_applied() {
    let ground = Ground::start();
    let client = ground.client().await;
    let cut = ground.proxy.when(Request::command("create2")).every_time().cut();
    for times in 1..=2 {
        assert_eq!(within(client.create("/a", &[], &PERSISTENT)).await.unwrap_err(), Error::ConnectionLoss);
        assert_eq!(cut.times_seen(), times);
        assert!(again(async || client.check_stat("/a").await).await.is_none());
    }
    cut.release();
    within(client.create("/a", &[], &PERSISTENT)).await.unwrap();
}

#[tokio::test]
async fn a_notification_passes_and_is_a_push_that_can_be_held() {
    let ground = Ground::start();
    let (client, direct) = (ground.client().await, ground.direct().await);
    let (_, watch) = within(client.check_and_watch_stat("/a")).await.unwrap();
    within(direct.create("/a", &[], &PERSISTENT)).await.unwrap();
    assert_eq!(within(watch.changed()).await.event_type, EventType::NodeCreated);

    let (_, watch) = within(client.check_and_watch_stat("/a")).await.unwrap();
    let held = ground.proxy.when_pushed(Request::command("notification").with_argument("/a")).hold();
    within(direct.delete("/a", None)).await.unwrap();
    seen(&held).await;
    let mut changed = tokio::spawn(watch.changed());
    assert!(tokio::time::timeout(A_WHILE, &mut changed).await.is_err());
    held.release();
    assert_eq!(within(changed).await.unwrap().event_type, EventType::NodeDeleted);
}

#[tokio::test]
async fn pings_keep_the_session_and_are_counted() {
    let ground = Ground::start();
    let client = ground.client().await;
    within(async {
        while ground.proxy.count("ping") < 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(!exists(&client, "/a").await);
    assert_eq!((ground.proxy.connections(), ground.proxy.count("connect"), ground.proxy.count("exists")), (1, 1, 1));
    drop(client);
    within(async {
        while ground.proxy.count("closeSession") == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn whole_locks_pass_many_times_undisturbed_also_in_small_segments() {
    const CONTENDERS: usize = 4;
    const ROUNDS: usize = 50;

    let ground = Ground::start();
    for direction in [Direction::ToServer, Direction::ToClient] {
        ground.proxy.set_segments(direction, Some(Segments::of(5)));
    }
    within(ground.client().await.create("/lock", &[], &PERSISTENT)).await.unwrap();
    let mut contenders = Vec::new();
    for _ in 0..CONTENDERS {
        let client = ground.client().await;
        contenders.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let (_, sequence) = client.create("/lock/n-", &[], &TICKET).await.unwrap();
                let own = format!("n-{sequence}");
                loop {
                    let mut children = client.list_children("/lock").await.unwrap();
                    children.sort();
                    let place = children.iter().position(|child| *child == own).unwrap();
                    let Some(before) = place.checked_sub(1) else { break };
                    let (stat, watch) =
                        client.check_and_watch_stat(&format!("/lock/{}", children[before])).await.unwrap();
                    if stat.is_some() {
                        assert_eq!(watch.changed().await.event_type, EventType::NodeDeleted);
                    }
                }
                client.delete(&format!("/lock/{own}"), None).await.unwrap();
            }
        }));
    }
    for contender in contenders {
        within(contender).await.unwrap();
    }
    let takes = u64::try_from(CONTENDERS * ROUNDS).unwrap();
    assert_eq!((ground.proxy.count("create2"), ground.proxy.count("delete")), (takes + 1, takes));
    assert_eq!(ground.proxy.connections(), u64::try_from(CONTENDERS + 1).unwrap());
}

#[tokio::test]
async fn the_faults_of_whole_connections_work_too() {
    let ground = Ground::start();
    let client = ground.client().await;

    ground.proxy.black_hole();
    let stat = tokio::spawn(client.check_stat("/a"));
    tokio::time::sleep(A_WHILE).await;
    assert!(!stat.is_finished());
    ground.proxy.heal();
    assert!(within(stat).await.unwrap().unwrap().is_none());

    ground.proxy.set_delay(Direction::ToServer, A_WHILE);
    let sent = lock_core::Moment::now();
    assert!(!exists(&client, "/a").await);
    assert!(lock_core::Moment::now().saturating_duration_since(sent) >= A_WHILE);
    ground.proxy.set_delay(Direction::ToServer, Duration::ZERO);

    ground.proxy.refuse_connections();
    ground.proxy.cut_connections();
    tokio::time::sleep(A_WHILE).await;
    ground.proxy.accept_connections().unwrap();
    assert!(again(async || client.check_stat("/a").await).await.is_none());
    assert_eq!(ground.proxy.count("connect"), 2);
}
