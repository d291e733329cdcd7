//! The faults of the proxy in front of a real etcd: of one call among many on a connection.

#![allow(clippy::unwrap_used, reason = "the functions below are for tests only")]

use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, PutOptions, Txn, TxnOp, WatchStream};
use lock_testkit::EtcdCluster;
use lock_testkit::fault::{Armed, Direction, Proxy, Request, Segments};

/// The longest that anything may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Long enough for anything to arrive that is not held.
const A_WHILE: Duration = Duration::from_millis(200);

struct Ground {
    etcd: EtcdCluster,
    proxy: Proxy,
}

impl Ground {
    fn start() -> Self {
        let etcd = EtcdCluster::start().unwrap();
        let proxy = Proxy::start_etcd(etcd.member(0).addr()).unwrap();
        Self { etcd, proxy }
    }

    /// A client whose one connection goes through the proxy.
    async fn client(&self) -> Client {
        Client::connect([format!("http://{}", self.proxy.addr())], None).await.unwrap()
    }

    /// A client that goes past the proxy.
    async fn direct(&self) -> Client {
        Client::connect(self.etcd.urls(), None).await.unwrap()
    }
}

/// What a lock does: puts the key unless it is there.
fn take(key: &str, lease: i64) -> Txn {
    let free = Compare::version(key, CompareOp::Equal, 0);
    let put = TxnOp::put(key, "owner", Some(PutOptions::new().with_lease(lease)));
    Txn::new().when([free]).and_then([put])
}

async fn holds(client: &mut Client, key: &str) -> bool {
    client.get(key, None).await.unwrap().count() == 1
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, what).await.expect("not within 30 s")
}

async fn seen(armed: &Armed) {
    within(armed.seen()).await;
}

async fn event(watch: &mut WatchStream) -> Vec<u8> {
    let response = within(watch.message()).await.unwrap().unwrap();
    response.events()[0].kv().unwrap().key().to_vec()
}

#[tokio::test]
async fn one_call_is_held_by_its_key_and_the_others_on_its_connection_go_on() {
    let ground = Ground::start();
    let mut client = ground.client().await;
    let lease = client.lease_grant(60, None).await.unwrap().id();
    let (mut keeper, mut kept) = client.lease_keep_alive(lease).await.unwrap();

    let held = ground.proxy.when(Request::command("Txn").with_argument("lock/a")).hold_request();
    let mut other = client.clone();
    let first = tokio::spawn(async move { other.txn(take("lock/a", lease)).await });
    seen(&held).await;
    // The name of this one begins with the name of that one.
    assert!(within(client.txn(take("lock/ab", lease))).await.unwrap().succeeded());
    for _ in 0..3 {
        within(keeper.keep_alive()).await.unwrap();
        assert_eq!(within(kept.message()).await.unwrap().unwrap().id(), lease);
    }
    assert!(!holds(&mut client, "lock/a").await);
    assert!(!first.is_finished());

    held.release();
    assert!(within(first).await.unwrap().unwrap().succeeded());
    assert!(holds(&mut client, "lock/a").await);
    assert_eq!(ground.proxy.connections(), 1);
    let count = |command| ground.proxy.count(command);
    assert_eq!((count("Txn"), count("LeaseGrant"), count("LeaseKeepAlive"), count("Range")), (2, 1, 4, 2));
}

#[tokio::test]
async fn a_held_reply_comes_late_but_its_call_was_applied() {
    let ground = Ground::start();
    let mut client = ground.client().await;
    let held = ground.proxy.when(Request::command("Txn").with_argument("a")).hold_reply();
    let mut other = client.clone();
    let first = tokio::spawn(async move { other.txn(take("a", 0)).await });
    seen(&held).await;
    assert!(holds(&mut client, "a").await, "the other calls pass");
    assert!(!first.is_finished());
    held.release();
    assert!(within(first).await.unwrap().unwrap().succeeded());
}

#[tokio::test]
async fn a_lost_reply_cuts_the_connection_but_its_call_was_applied() {
    let ground = Ground::start();
    let mut client = ground.client().await;
    let lost = ground.proxy.when(Request::command("Txn").with_argument("a")).lose_reply();
    within(client.txn(take("a", 0))).await.unwrap_err();
    assert_eq!(lost.times_seen(), 1);
    assert!(holds(&mut ground.direct().await, "a").await);
    // The client connects again by itself.
    assert!(!within(client.txn(take("a", 0))).await.unwrap().succeeded());
    assert_eq!(ground.proxy.connections(), 2);
}

#[tokio::test]
async fn a_refused_call_has_its_status_for_a_reply() {
    let ground = Ground::start();
    let mut client = ground.client().await;
    let held = ground.proxy.when(Request::command("LeaseRevoke")).hold_reply();
    let mut other = client.clone();
    let revoke = tokio::spawn(async move { other.lease_revoke(4_711).await });
    seen(&held).await;
    assert!(!holds(&mut client, "a").await);
    assert!(!revoke.is_finished());
    held.release();
    let error = within(revoke).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("lease not found"), "{error}");
}

#[tokio::test]
async fn a_cut_call_is_not_applied() {
    let ground = Ground::start();
    let mut client = ground.client().await;
    let cut = ground.proxy.when(Request::command("Put").with_argument("a")).every_time().cut();
    for times in 1..=2 {
        within(client.put("a", "1", None)).await.unwrap_err();
        assert_eq!(cut.times_seen(), times);
    }
    assert!(!holds(&mut client, "a").await);
    cut.release();
    within(client.put("a", "1", None)).await.unwrap();
}

#[tokio::test]
async fn a_held_call_lands_although_its_client_has_given_it_up_or_has_gone() {
    let ground = Ground::start();
    let (mut client, mut direct) = (ground.client().await, ground.direct().await);
    for (key, is_gone) in [("given up", false), ("gone", true)] {
        for round in 0..10 {
            let key = format!("{key} {round}");
            let mut client = if is_gone { ground.client().await } else { client.clone() };
            let held = ground.proxy.when(Request::command("Put").with_argument(&key)).hold_request();
            let put = key.clone();
            let call = tokio::spawn(async move { client.put(put, "1", None).await });
            seen(&held).await;
            call.abort();
            assert!(call.await.unwrap_err().is_cancelled());
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(!holds(&mut direct, &key).await);
            held.release();
            within(async {
                while !holds(&mut direct, &key).await {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
            .await;
        }
    }
    assert!(within(client.put("a", "1", None)).await.is_ok(), "the connection lives on");
}

#[tokio::test]
async fn an_event_of_a_watch_is_a_push_that_can_be_held_and_lost() {
    let ground = Ground::start();
    let mut client = ground.client().await;
    let mut watch = client.watch("a", None).await.unwrap();
    assert!(within(watch.message()).await.unwrap().unwrap().created());
    client.put("a", "1", None).await.unwrap();
    assert_eq!(event(&mut watch).await, b"a");

    let held = ground.proxy.when_pushed(Request::command("Watch").with_argument("a")).hold();
    client.put("a", "2", None).await.unwrap();
    seen(&held).await;
    client.put("a", "3", None).await.unwrap();
    assert!(tokio::time::timeout(A_WHILE, watch.message()).await.is_err());
    held.release();
    assert_eq!([event(&mut watch).await, event(&mut watch).await], [b"a", b"a"]);

    let lost = ground.proxy.when_pushed(Request::any()).lose();
    client.put("a", "4", None).await.ok();
    seen(&lost).await;
    assert!(within(watch.message()).await.is_err(), "its connection is cut");
}

#[tokio::test]
async fn a_stream_takes_many_requests_and_each_can_be_held() {
    let ground = Ground::start();
    let mut client = ground.client().await;
    let lease = client.lease_grant(60, None).await.unwrap().id();
    let (mut keeper, mut kept) = client.lease_keep_alive(lease).await.unwrap();
    for _ in 0..2 {
        let held = ground.proxy.when(Request::command("LeaseKeepAlive")).hold_request();
        keeper.keep_alive().await.unwrap();
        seen(&held).await;
        assert!(tokio::time::timeout(A_WHILE, kept.message()).await.is_err());
        held.release();
        within(kept.message()).await.unwrap().unwrap();

        let held = ground.proxy.when(Request::command("LeaseKeepAlive")).hold_reply();
        keeper.keep_alive().await.unwrap();
        seen(&held).await;
        assert!(tokio::time::timeout(A_WHILE, kept.message()).await.is_err());
        held.release();
        within(kept.message()).await.unwrap().unwrap();
    }

    // A watch that is asked for, but not told so yet.
    let held = ground.proxy.when(Request::command("Watch").with_argument("b")).hold_reply();
    let mut watch = client.watch("b", None).await.unwrap();
    seen(&held).await;
    client.put("b", "1", None).await.unwrap();
    assert!(tokio::time::timeout(A_WHILE, watch.message()).await.is_err());
    held.release();
    assert!(within(watch.message()).await.unwrap().unwrap().created());
    assert_eq!(event(&mut watch).await, b"b");
}

#[tokio::test]
async fn whole_locks_pass_many_times_undisturbed_also_in_small_segments() {
    const CONTENDERS: usize = 4;
    const ROUNDS: usize = 50;

    let ground = Ground::start();
    for direction in [Direction::ToServer, Direction::ToClient] {
        ground.proxy.set_segments(direction, Some(Segments::of(5)));
    }
    let client = ground.client().await;
    let contenders: Vec<_> = (0..CONTENDERS)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move {
                let lease = client.lease_grant(60, None).await.unwrap().id();
                let (mut keeper, mut kept) = client.lease_keep_alive(lease).await.unwrap();
                for _ in 0..ROUNDS {
                    loop {
                        let mut watch = client.watch("lock", None).await.unwrap();
                        assert!(watch.message().await.unwrap().unwrap().created());
                        if client.txn(take("lock", lease)).await.unwrap().succeeded() {
                            break;
                        }
                        watch.message().await.unwrap().unwrap();
                    }
                    keeper.keep_alive().await.unwrap();
                    assert!(kept.message().await.unwrap().unwrap().ttl() > 0);
                    assert_eq!(client.delete("lock", None).await.unwrap().deleted(), 1);
                }
                client.lease_revoke(lease).await.unwrap();
            })
        })
        .collect();
    for contender in contenders {
        within(contender).await.unwrap();
    }
    assert_eq!(ground.proxy.connections(), 1);
    let deletes = u64::try_from(CONTENDERS * ROUNDS).unwrap();
    assert_eq!(ground.proxy.count("DeleteRange"), deletes);
    assert_eq!(ground.proxy.count("Watch"), ground.proxy.count("Txn"));
}

#[tokio::test]
async fn large_values_pass_whole_both_ways() {
    let ground = Ground::start();
    let mut client = ground.client().await;
    let value: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    within(client.put("large", value.clone(), None)).await.unwrap();
    let answer = within(client.get("large", None)).await.unwrap();
    assert!(answer.kvs()[0].value() == value);
    let longest = ground.proxy.recent().into_iter().flatten().map(|argument| argument.len()).max();
    assert!(longest > Some(value.len()), "the tap has the whole message");
}

#[tokio::test]
async fn the_faults_of_whole_connections_work_too() {
    let ground = Ground::start();
    let mut client = ground.client().await;
    client.put("a", "1", None).await.unwrap();

    ground.proxy.black_hole();
    let mut other = client.clone();
    let put = tokio::spawn(async move { other.put("a", "2", None).await });
    tokio::time::sleep(A_WHILE).await;
    assert!(!put.is_finished());
    ground.proxy.heal();
    within(put).await.unwrap().unwrap();

    ground.proxy.set_delay(Direction::ToClient, A_WHILE);
    let sent = lock_core::Moment::now();
    within(client.put("a", "3", None)).await.unwrap();
    assert!(lock_core::Moment::now().saturating_duration_since(sent) >= A_WHILE);
    ground.proxy.set_delay(Direction::ToClient, Duration::ZERO);

    let held = ground.proxy.when(Request::command("Put")).hold_request();
    let mut other = client.clone();
    let put = tokio::spawn(async move { other.put("a", "4", None).await });
    seen(&held).await;
    ground.proxy.refuse_connections();
    ground.proxy.cut_connections();
    within(put).await.unwrap().unwrap_err();
    within(client.put("a", "5", None)).await.unwrap_err();
    ground.proxy.accept_connections().unwrap();
    within(client.put("a", "6", None)).await.unwrap();
    assert_eq!(client.get("a", None).await.unwrap().kvs()[0].value(), b"6");
}
