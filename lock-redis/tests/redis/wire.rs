//! What other programs see, and what they do.

use std::collections::HashMap;
use std::sync::Arc;

use lock_core::{Backend, ErrorKind, Lease, LockKey, Owner, Release, Renew};
use lock_redis::{Config, Connection, Reentrant, Token, TokenOptions};
use lock_testkit::RedisServer;

use crate::ground::{Ground, ROOM, claim, fixed, millis, renewed, soon, take, until};

/// The uuid that Redisson would write, and our way to write an owner.
fn owner_field(owner: Owner) -> String {
    let hex = format!("{:032x}", owner.bits());
    format!("{}-{}-{}-{}-{}:1", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[tokio::test]
async fn a_reentrant_lock_looks_like_redissons() {
    let ground = Ground::new();
    let backend = ground.reentrant(ROOM).await;
    let owner = Owner::random();
    let lock = fixed(&backend, millis(30_000)).lock("orders/42").unwrap().owner(&owner);
    let outer = lock.acquire().await.unwrap();
    let hash = || ground.server.command::<HashMap<String, u64>>(&["HGETALL", "orders/42"]).unwrap();
    assert_eq!(hash(), HashMap::from([(owner_field(owner), 1)]));
    let inner = lock.acquire().await.unwrap();
    assert_eq!(hash(), HashMap::from([(owner_field(owner), 2)]));
    assert!((1..=30_000).contains(&ground.pttl("orders/42")));
    assert!((1..=30_000).contains(&ground.pttl("hasp-claims:{orders/42}")));
    assert_eq!(inner.release().await.unwrap(), Release::Released);
    assert_eq!(hash(), HashMap::from([(owner_field(owner), 1)]));
    let monitor = ground.server.monitor().unwrap();
    assert_eq!(outer.release().await.unwrap(), Release::Released);
    assert_eq!(hash(), HashMap::new());
    let published = monitor.commands().unwrap();
    let expected = ["PUBLISH", "redisson_lock__channel:{orders/42}", "0"];
    assert!(published.iter().any(|command| command.arguments == expected), "{published:?}");
}

#[tokio::test]
async fn a_partial_release_leaves_the_lease_alone() {
    let ground = Ground::new();
    let backend = ground.reentrant(ROOM).await;
    let owner = Owner::random();
    let short = fixed(&backend, millis(5_000)).lock("a").unwrap().owner(&owner);
    let outer = short.acquire().await.unwrap();
    let inner = short.acquire().await.unwrap();
    tokio::time::sleep(millis(100)).await;
    let before = ground.pttl("a");
    assert_eq!(inner.release().await.unwrap(), Release::Released);
    let after = ground.pttl("a");
    assert!(after <= before && after > 0, "{before} {after}");
    // And a re-entry with a shorter lease does not shorten it.
    let long = short.clone().lease(Lease::fixed(millis(60_000))).acquire().await.unwrap();
    let again = short.acquire().await.unwrap();
    assert!(ground.pttl("a") > 30_000);
    drop((outer, long, again));
}

#[tokio::test]
async fn redissons_hold_excludes_ours_and_its_release_wakes_us() {
    let ground = Ground::new();
    let backend = ground.reentrant(ROOM).await;
    ground.server.command::<()>(&["HSET", "a", "2b3c8f0e-6f0f-4b0e-9a3b-1c2d3e4f5a6b:47", "1"]).unwrap();
    ground.server.command::<()>(&["PEXPIRE", "a", "300000"]).unwrap();
    assert!(backend.try_acquire(&claim("a", millis(30_000))).await.unwrap().is_none());
    let seen = backend.inspect(&LockKey::new("a").unwrap()).await.unwrap();
    assert_eq!(seen.holder.as_deref(), Some("2b3c8f0e-6f0f-4b0e-9a3b-1c2d3e4f5a6b:47"));
    assert_eq!(seen.fencing_token, None);

    let locks = renewed(&backend, millis(5_000));
    let waiter = tokio::spawn(async move { locks.lock("a").unwrap().acquire().await });
    let channel = "redisson_lock__channel:{a}";
    until("it listens", || ground.server.command::<u64>(&["PUBLISH", channel, "1"]).unwrap() == 1).await;
    ground.server.command::<()>(&["DEL", "a"]).unwrap();
    ground.server.command::<()>(&["PUBLISH", channel, "0"]).unwrap();
    let guard = soon(waiter).await.unwrap().unwrap();
    // Redisson's `forceUnlock` deletes the hash alone; the set of claims that stays behind counts for nothing.
    ground.server.command::<()>(&["DEL", "a"]).unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::NotHeld);
    ground.server.command::<()>(&["SADD", "hasp-claims:{a}", "stale"]).unwrap();
    let next = take(&*backend, "a", millis(30_000)).await;
    assert_eq!(ground.holds("a"), [1]);
    assert_eq!(ground.server.command::<u64>(&["SCARD", "hasp-claims:{a}"]).unwrap(), 1);
    assert_eq!(backend.release(&next).await.unwrap(), Release::Released);
    assert!(!ground.exists("hasp-claims:{a}"));
}

#[tokio::test]
async fn a_release_works_when_the_claims_were_evicted() {
    let ground = Ground::new();
    let backend = ground.reentrant(ROOM).await;
    let grant = take(&*backend, "a", millis(30_000)).await;
    ground.server.command::<()>(&["DEL", "hasp-claims:{a}"]).unwrap();
    let renewal = backend.renew(&[Renew::new(&grant, millis(30_000))]).await.remove(0);
    renewal.unwrap();
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    assert!(!ground.exists("a"));
}

#[tokio::test]
async fn a_plain_string_of_another_library_excludes_and_is_excluded() {
    let ground = Ground::new();
    let connection = Connection::open(&ground.server.url(), Config::new()).await.unwrap();
    let backend = Token::new(connection, TokenOptions::new().with_prefix("")).await.unwrap();
    let set =
        |value: &str| ground.server.command::<Option<String>>(&["SET", "job", value, "NX", "PX", "30000"]).unwrap();
    assert!(set("theirs").is_some());
    assert!(backend.try_acquire(&claim("job", millis(30_000))).await.unwrap().is_none());
    let key = LockKey::new("job").unwrap();
    let seen = backend.inspect(&key).await.unwrap();
    assert_eq!((seen.holder.as_deref(), seen.fencing_token), (Some("theirs"), None));
    ground.server.command::<()>(&["DEL", "job"]).unwrap();
    let ours = take(&backend, "job", millis(30_000)).await;
    assert!(set("theirs").is_none());
    assert_eq!(backend.release(&ours).await.unwrap(), Release::Released);
    let error = backend.list("").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn fences_are_not_listed_as_locks() {
    let ground = Ground::new();
    let connection = Connection::open(&ground.server.url(), Config::new()).await.unwrap();
    // The key of a fence begins with this prefix, too.
    let backend = Token::new(connection, TokenOptions::new().with_prefix("hasp")).await.unwrap();
    take(&backend, "a", millis(30_000)).await;
    assert!(ground.exists("hasp-fence:{haspa}"));
    assert_eq!(backend.list("").await.unwrap(), [LockKey::new("a").unwrap()]);
}

#[tokio::test]
async fn a_holder_without_an_end_is_waited_for() {
    let ground = Ground::new();
    let backend = ground.direct().await;
    ground.server.command::<()>(&["SET", "hasp:a", "for ever"]).unwrap();
    let locks = renewed(&backend, millis(5_000));
    let waiter = tokio::spawn(async move { locks.lock("a").unwrap().acquire().await });
    tokio::time::sleep(millis(100)).await;
    assert!(!waiter.is_finished());
    ground.server.command::<()>(&["DEL", "hasp:a"]).unwrap();
    drop(soon(waiter).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_lock_never_meets_a_key_of_the_application() {
    let ground = Ground::new();
    ground.server.command::<()>(&["LPUSH", "orders", "1"]).unwrap();
    let backend = ground.direct().await;
    let grant = take(&*backend, "orders", millis(30_000)).await;
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    assert_eq!(ground.server.command::<u64>(&["LLEN", "orders"]).unwrap(), 1);
}

#[tokio::test]
async fn a_cluster_node_takes_every_script_because_the_keys_of_a_lock_share_a_slot() {
    let server = RedisServer::builder().config("cluster-enabled", "yes").start().unwrap();
    server.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).unwrap();
    until("it serves all slots", || server.command::<()>(&["SET", "a", "1"]).is_ok()).await;
    let token: Arc<dyn Backend> = Arc::new(Token::connect(&server.url()).await.unwrap());
    let reentrant: Arc<dyn Backend> = Arc::new(Reentrant::connect(&server.url()).await.unwrap());
    for backend in [token, reentrant] {
        let mut refused = Vec::new();
        for name in ["n", "{", "}", "{}", "}{", "{n}", "{n}b", "n}b", "{}n", "n{", "🔒", "{{n}}", "n}{b}"] {
            let claim = claim(name, millis(30_000));
            let grant = match backend.try_acquire(&claim).await {
                Ok(grant) => grant.unwrap(),
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    refused.push(name);
                    continue;
                }
                Err(error) => panic!("{name}: {error}"),
            };
            backend.renew(&[Renew::new(&grant, millis(40_000))]).await.remove(0).unwrap();
            assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
            take(&*backend, name, millis(30_000)).await;
            assert_eq!(backend.force_release(&claim.key).await.unwrap(), Release::Released);
        }
        if backend.guarantees().reentrant {
            assert_eq!(refused, ["{", "}", "{}", "}{", "n}b", "{}n", "n{"]);
        } else {
            assert_eq!(refused, [""; 0]);
        }
    }
}
