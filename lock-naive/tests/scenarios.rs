//! How each strategy breaks: the scenarios of the fault catalogue that its guarantees admit, made to happen on a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{Backend, Claim, ErrorKind, Grant, Lease, LockKey, Locks, Moment, Owner, Release};
use lock_naive::{BlindDelete, Config, GetSet, SetnxExpire};
use lock_testkit::RedisServer;
use lock_testkit::fault::{Proxy, Request};

const KEY: &str = "orders/42";

/// S01. The process ends after SETNX has been applied and before EXPIRE has: its driver dies with it and undoes nothing.
#[test]
fn a_crash_between_setnx_and_expire_locks_for_ever() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    let cut = proxy.when(Request::command("EXPIRE")).cut();
    // The driver would undo it a moment later, if the process did not end at this one.
    let _no_undo = proxy.when(Request::command("GET")).every_time().cut();

    let doomed = tokio::runtime::Runtime::new().unwrap();
    doomed.block_on(async {
        let locks = Locks::new(SetnxExpire::connect(&server.url_at(proxy.addr())).await.unwrap());
        tokio::spawn(async move { locks.lock(KEY)?.lease(fixed(1_000)).acquire().await });
        soon(cut.seen()).await;
    });
    doomed.shutdown_background();

    let survivor = tokio::runtime::Runtime::new().unwrap();
    survivor.block_on(async {
        assert_eq!(server.command::<i64>(&["PTTL", "hasp:naive-setnx-expire:orders/42"]).unwrap(), -1, "no ttl at all");
        let locks = Locks::new(SetnxExpire::connect(&server.url()).await.unwrap());
        let refused = locks.lock(KEY).unwrap().acquire_within(Duration::from_millis(1_500)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TimedOut, "{refused}");

        // Only a person helps.
        let key = LockKey::new(KEY).unwrap();
        assert_eq!(locks.backend().inspect(&key).await.unwrap().remaining, None);
        assert_eq!(locks.backend().force_release(&key).await.unwrap(), Release::Released);
        assert!(locks.lock(KEY).unwrap().try_acquire().await.unwrap().is_some());
    });
}

/// S02, where it does no harm: the same loss while the process lives on is undone by its driver.
#[tokio::test]
async fn a_lost_expire_is_undone_while_the_process_lives() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    let cut = proxy.when(Request::command("EXPIRE")).cut();
    let ours = Locks::new(SetnxExpire::connect(&server.url_at(proxy.addr())).await.unwrap());
    let theirs = Locks::new(SetnxExpire::connect(&server.url()).await.unwrap());

    let failed = ours.lock(KEY).unwrap().lease(fixed(2_000)).try_acquire().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Unavailable, "{failed}");
    assert_eq!(cut.times_seen(), 1);
    let guard = soon(theirs.lock(KEY).unwrap().acquire()).await.unwrap();
    assert!(guard.is_held());
}

/// S11. B's wall clock is a minute and a second ahead, so A's minute has passed for it.
#[tokio::test]
async fn a_client_with_a_fast_clock_steals_a_getset_lock() {
    let server = RedisServer::start().unwrap();
    let ours = Locks::new(GetSet::connect(&server.url()).await.unwrap());
    let fast = Arc::new(|| SystemTime::now() + Duration::from_secs(61));
    let theirs = Locks::new(GetSet::connect(&server.url()).await.unwrap().with_clock(fast));
    let third = Locks::new(GetSet::connect(&server.url()).await.unwrap());

    let guard = ours.lock(KEY).unwrap().lease(fixed(60_000)).acquire().await.unwrap();
    assert!(third.lock(KEY).unwrap().try_acquire().await.unwrap().is_none(), "with a true clock it is held");

    let stolen = theirs.lock(KEY).unwrap().lease(fixed(60_000)).try_acquire().await.unwrap().expect("stolen");
    assert!(guard.is_held() && stolen.is_held(), "two holders before their deadlines");
    assert_eq!(guard.release().await.unwrap(), Release::NotHeld);
}

/// S12. C and D read the same stale stamp. C's GETSET comes first and wins; D's comes second and loses, but what it wrote
/// stands, so C's release finds a stamp that is not C's and frees nothing.
#[tokio::test]
async fn a_loser_of_getset_bumps_the_stamp_and_the_winner_cannot_release() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    let time = WallClock::new();
    let client =
        async |url: String| GetSet::connect(&url).await.unwrap().with_config(patient()).with_clock(time.clock());
    let dead = client(server.url()).await;
    let winner = client(server.url()).await;
    let loser = client(server.url_at(proxy.addr())).await;
    let prober = client(server.url()).await;

    assert!(dead.try_acquire(&claim(1_000)).await.unwrap().is_some());
    time.advance(1_001);

    let held = proxy.when(Request::command("GETSET")).hold_request();
    let losing = tokio::spawn({
        let loser = loser.clone();
        async move { loser.try_acquire(&claim(5_000)).await }
    });
    soon(held.seen()).await;
    let grant = winner.try_acquire(&claim(5_000)).await.unwrap().expect("the first GETSET gets the stale stamp back");
    held.release();
    assert!(losing.await.unwrap().unwrap().is_none(), "exactly one winner");

    assert_eq!(winner.release(&grant).await.unwrap(), Release::NotHeld, "the loser's stamp is in the way");
    assert!(prober.try_acquire(&claim(1_000)).await.unwrap().is_none(), "nobody holds it, and nobody gets it");
    time.advance(5_001);
    assert!(prober.try_acquire(&claim(1_000)).await.unwrap().is_some(), "until the loser's stamp has passed");
}

/// S18, and S24: through the driver, which never answers a release for the store.
#[tokio::test]
async fn a_late_blind_delete_frees_anothers_lock() {
    let server = RedisServer::start().unwrap();
    let connect = async || Locks::new(BlindDelete::connect(&server.url()).await.unwrap());
    let (first, second, third) = (connect().await, connect().await, connect().await);

    let late = first.lock(KEY).unwrap().lease(fixed(200)).acquire().await.unwrap();
    let guard = soon(second.lock(KEY).unwrap().lease(fixed(60_000)).acquire()).await.unwrap();
    assert!(third.lock(KEY).unwrap().try_acquire().await.unwrap().is_none());

    assert_eq!(late.release().await.unwrap(), Release::Released, "the holder is told that it released its own");
    let beside = third.lock(KEY).unwrap().lease(fixed(60_000)).try_acquire().await.unwrap().expect("freed");
    assert!(guard.is_held() && beside.is_held(), "two holders before their deadlines");
}

/// S19. A has read its own value; before its DEL arrives, its lease ends and B takes the lock.
#[tokio::test]
async fn compare_then_delete_frees_anothers_lock_in_between() {
    for strategy in [Racy::SetnxExpire, Racy::GetSet] {
        let server = RedisServer::start().unwrap();
        let proxy = Proxy::start(server.addr()).unwrap();
        let late = strategy.connect(&server.url_at(proxy.addr())).await;
        let (next, third) = (strategy.connect(&server.url()).await, strategy.connect(&server.url()).await);

        let old = late.try_acquire(&claim(1_000)).await.unwrap().unwrap();
        let held = proxy.when(Request::command("DEL")).hold_request();
        let releasing = tokio::spawn({
            let late = Arc::clone(&late);
            async move { late.release(&old).await }
        });
        soon(held.seen()).await;
        let theirs = taken_when_free(&*next).await;
        assert!(third.try_acquire(&claim(1_000)).await.unwrap().is_none());

        held.release();
        let _whatever_it_was_told = releasing.await.unwrap().unwrap();
        assert!(third.try_acquire(&claim(60_000)).await.unwrap().is_some(), "{}: two holders", third.name());
        assert_eq!(next.release(&theirs).await.unwrap(), Release::NotHeld);
    }
}

/// S19, the other way: where the lock has changed hands before the GET, the comparison helps.
#[tokio::test]
async fn compare_then_delete_leaves_anothers_lock_alone_afterwards() {
    let server = RedisServer::start().unwrap();
    for strategy in [Racy::SetnxExpire, Racy::GetSet] {
        let (late, next) = (strategy.connect(&server.url()).await, strategy.connect(&server.url()).await);
        let old = late.try_acquire(&claim(1_000)).await.unwrap().unwrap();
        let theirs = taken_when_free(&*next).await;
        assert_eq!(late.release(&old).await.unwrap(), Release::NotHeld);
        assert_eq!(next.release(&theirs).await.unwrap(), Release::Released);
    }
}

#[derive(Clone, Copy)]
enum Racy {
    SetnxExpire,
    GetSet,
}

impl Racy {
    async fn connect(self, url: &str) -> Arc<dyn Backend> {
        match self {
            Self::SetnxExpire => {
                Arc::new(SetnxExpire::connect(url).await.expect("the server runs").with_config(patient()))
            }
            Self::GetSet => Arc::new(GetSet::connect(url).await.expect("the server runs").with_config(patient())),
        }
    }
}

/// A wall clock that stands still until it is moved.
#[derive(Clone)]
struct WallClock(Arc<AtomicU64>);

impl WallClock {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_767_225_600_000)))
    }

    fn advance(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::Relaxed);
    }

    fn clock(&self) -> Arc<dyn Fn() -> SystemTime + Send + Sync> {
        let millis = Arc::clone(&self.0);
        Arc::new(move || UNIX_EPOCH + Duration::from_millis(millis.load(Ordering::Relaxed)))
    }
}

/// So that a request may be held for as long as a scenario needs.
fn patient() -> Config {
    Config::new().with_request_limit(Duration::from_secs(30))
}

fn fixed(millis: u64) -> Lease {
    Lease::fixed(Duration::from_millis(millis))
}

fn claim(millis: u64) -> Claim {
    Claim::new(LockKey::new(KEY).expect("a valid name"), Owner::random(), fixed(millis))
}

/// Takes the lock for a minute as soon as its lease has ended.
async fn taken_when_free(client: &dyn Backend) -> Grant {
    let claim = claim(60_000);
    let limit = Moment::now().saturating_add(Duration::from_secs(20));
    loop {
        if let Some(grant) = client.try_acquire(&claim).await.expect("the server runs") {
            return grant;
        }
        assert!(Moment::now() < limit, "the lease never ends");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What must happen, but not at once.
async fn soon<T>(happens: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), happens).await.expect("within 20 s")
}
