//! The scripts, on a real server.

use lock_core::{Claim, Lease, LockKey, Owner};
use lock_testkit::RedisServer;

use super::*;

const LOCK: &str = "hasp:a";
const FENCE: &str = "hasp-redlock-fence:hasp:a";

struct Ground {
    server: RedisServer,
    node: Node,
    ttl: Ttl,
}

impl Ground {
    fn new() -> Self {
        let server = RedisServer::start().unwrap();
        let node = Node::at(&server.url(), Config::new());
        Self { server, node, ttl: Ttl::new(Duration::from_secs(60), "redlock", "acquire").unwrap() }
    }

    fn value(&self) -> Option<String> {
        self.server.command(&["GET", LOCK]).unwrap()
    }

    fn fence(&self) -> Option<String> {
        self.server.command(&["GET", FENCE]).unwrap()
    }
}

fn entry(fenced: bool) -> Entry {
    let key = LockKey::new("a").unwrap();
    let names = Names::new("hasp:", &key, fenced, "redlock", "acquire").unwrap();
    Entry::new(names, &Claim::new(key, Owner::random(), Lease::default()).with_label("host:1"))
}

#[tokio::test]
async fn the_undoing_of_an_old_round_leaves_a_newer_vote_alone() {
    let Ground { node, ttl, .. } = &Ground::new();
    let entry = entry(false);
    assert!(node.acquire(&entry, 3, ttl).await.unwrap().is_some());
    assert!(node.acquire(&entry, 5, ttl).await.unwrap().is_some());
    assert_eq!(node.release(&entry, Some(3), "acquire").await.unwrap(), None);
    assert!(node.inspect(&entry.names).await.unwrap().is_some());
    assert_eq!(node.release(&entry, Some(5), "acquire").await.unwrap(), Some(()));
    assert_eq!(node.inspect(&entry.names).await.unwrap(), None);
}

#[tokio::test]
async fn a_late_request_of_an_old_round_does_not_make_the_vote_its_own() {
    let ground = Ground::new();
    let entry = entry(false);
    assert!(ground.node.acquire(&entry, 5, &ground.ttl).await.unwrap().is_some());
    let before = ground.value();
    assert_eq!(ground.node.acquire(&entry, 3, &ground.ttl).await.unwrap(), None);
    assert_eq!(ground.value(), before);
    // Now its undoing has nothing to undo.
    assert_eq!(ground.node.release(&entry, Some(3), "acquire").await.unwrap(), None);
    assert_eq!(ground.value(), before);
}

#[tokio::test]
async fn a_vote_that_a_renewal_has_counted_is_not_undone_with_an_older_round() {
    let ground = Ground::new();
    let entry = entry(false);
    // A request of a lost round lands late; the lock has been won in round 5, and its renewal counts this vote.
    assert!(ground.node.acquire(&entry, 3, &ground.ttl).await.unwrap().is_some());
    let answers = ground.node.renew(&[(entry.clone(), 5, ground.ttl.clone())]).await;
    assert!(matches!(*answers, [Ok(Some(()))]), "{answers:?}");
    assert_eq!(ground.node.release(&entry, Some(4), "acquire").await.unwrap(), None);
    assert_eq!(ground.value().unwrap(), format!("{}:5:host:1", entry.claim));
    let left: u64 = ground.server.command(&["PTTL", LOCK]).unwrap();
    assert!((30_000..=60_000).contains(&left), "{left}");
    // A renewal never makes a vote older.
    ground.node.renew(&[(entry.clone(), 4, ground.ttl.clone())]).await;
    assert_eq!(ground.value().unwrap(), format!("{}:5:host:1", entry.claim));
}

#[tokio::test]
async fn another_claim_gets_and_changes_nothing() {
    let ground = Ground::new();
    let (ours, theirs) = (entry(true), entry(true));
    assert!(ground.node.acquire(&ours, 1, &ground.ttl).await.unwrap().is_some());
    assert_eq!(ground.value().unwrap(), format!("{}:1:host:1", ours.claim));
    assert_eq!(ground.node.acquire(&theirs, 2, &ground.ttl).await.unwrap(), None);
    assert_eq!(ground.node.mint(&theirs, 7, &ground.ttl).await.unwrap(), None);
    assert_eq!(ground.node.release(&theirs, None, "release").await.unwrap(), None);
    let answers = ground.node.renew(&[(theirs, 2, ground.ttl.clone()), (ours.clone(), 1, ground.ttl.clone())]).await;
    assert!(matches!(*answers, [Ok(None), Ok(Some(()))]), "{answers:?}");
    assert_eq!(ground.fence(), None);
    assert_eq!(ground.value().unwrap(), format!("{}:1:host:1", ours.claim));
}

#[tokio::test]
async fn a_ttl_is_never_shortened() {
    let ground = Ground::new();
    let entry = entry(false);
    let shorter = Ttl::new(Duration::from_secs(1), "redlock", "renew").unwrap();
    ground.node.acquire(&entry, 1, &ground.ttl).await.unwrap();
    ground.node.acquire(&entry, 2, &shorter).await.unwrap();
    ground.node.renew(&[(entry, 2, shorter)]).await;
    let left: u64 = ground.server.command(&["PTTL", LOCK]).unwrap();
    assert!((30_000..=60_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_token_never_falls_and_no_two_claims_share_one() {
    let ground = Ground::new();
    let (first, second) = (entry(true), entry(true));
    // Above any clock, so that only the fence counts.
    let base = 1 << 52;
    let reading = ground.node.acquire(&first, 1, &ground.ttl).await.unwrap().unwrap();
    assert_eq!((reading.last, reading.is_own), (0, false));
    assert!((1_500_000_000_000_000..1 << 52).contains(&reading.time), "{reading:?}");
    assert_eq!(ground.node.mint(&first, base, &ground.ttl).await.unwrap(), Some(()));
    assert_eq!(ground.fence().unwrap(), format!("{base} {}", first.claim));
    assert_eq!(ground.node.mint(&first, base - 1, &ground.ttl).await.unwrap(), None);
    assert_eq!(ground.node.mint(&first, base, &ground.ttl).await.unwrap(), Some(()));
    let repeated = ground.node.acquire(&first, 2, &ground.ttl).await.unwrap().unwrap();
    assert_eq!((repeated.last, repeated.is_own), (base, true));

    ground.node.release(&first, None, "release").await.unwrap();
    assert_eq!(ground.node.mint(&first, base + 1, &ground.ttl).await.unwrap(), None);
    let reading = ground.node.acquire(&second, 3, &ground.ttl).await.unwrap().unwrap();
    assert_eq!((reading.last, reading.is_own), (base, false));
    assert_eq!(ground.node.mint(&second, base, &ground.ttl).await.unwrap(), None);
    assert_eq!(ground.node.mint(&second, base + 1, &ground.ttl).await.unwrap(), Some(()));
    assert_eq!(ground.fence().unwrap(), format!("{} {}", base + 1, second.claim));
}

#[tokio::test]
async fn the_fence_outlives_its_lock_by_a_day() {
    let ground = Ground::new();
    let entry = entry(true);
    ground.node.acquire(&entry, 1, &ground.ttl).await.unwrap();
    ground.node.mint(&entry, 7, &ground.ttl).await.unwrap();
    let left: u64 = ground.server.command(&["PTTL", FENCE]).unwrap();
    assert!((86_400_000..=86_460_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_full_node_releases_and_renews_and_gives_no_vote() {
    let ground = Ground::new();
    let (ours, other) = (entry(false), entry(false));
    ground.node.acquire(&ours, 1, &ground.ttl).await.unwrap();
    ground.server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    assert!(matches!(*ground.node.renew(&[(ours.clone(), 1, ground.ttl.clone())]).await, [Ok(Some(()))]));
    assert_eq!(ground.node.release(&ours, None, "release").await.unwrap(), Some(()));
    let error = ground.node.acquire(&other, 2, &ground.ttl).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Rejected, Effect::None));
}

#[tokio::test]
async fn what_another_program_keeps_there_is_left_alone() {
    let ground = Ground::new();
    let entry = entry(true);
    for foreign in [&["SET", LOCK, "mine"][..], &["RPUSH", LOCK, "x"]] {
        ground.server.command::<()>(&["DEL", LOCK]).unwrap();
        ground.server.command::<()>(foreign).unwrap();
        let attempt = ground.node.acquire(&entry, 1, &ground.ttl).await;
        assert!(attempt.is_err() || attempt.unwrap().is_none());
        drop(ground.node.release(&entry, None, "release").await);
        assert_eq!(ground.server.command::<u64>(&["EXISTS", LOCK]).unwrap(), 1);
    }
}
