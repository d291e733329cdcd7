//! What stands in the store: names, data, parents, and what others put there (S61).

use lock_core::{Backend as _, ErrorKind, Release};
use lock_testkit::ZooKeeperEnsemble;
use lock_zookeeper::{Config, Naming, ZooKeeper};
use zookeeper_client::{Acls, CreateMode};

use crate::ground::{Ground, claim, connector, locks, millis, nodes, open, take};
use crate::hostile::hostile_keys;

#[tokio::test(flavor = "multi_thread")]
async fn nodes_look_as_the_page_says() {
    let ground = Ground::new();
    let look = ground.look().await;
    for (naming, before, between) in [(Naming::Curator, "_c_", "-lock-"), (Naming::Kazoo, "", "__lock__")] {
        let config = Config::new().with_prefix("/a/b").with_naming(naming);
        let ours = open(&ground.ensemble.hosts(), config).await;
        let name = format!("orders/{naming:?} 1");
        let path = format!("/a/b/orders%2F{naming:?}%201");
        let grant = ours.try_acquire(&claim(&name).with_label("host 7")).await.unwrap().unwrap();
        let children = nodes(&look, &path).await;
        assert_eq!(children.len(), 1);
        let id = format!("{:032x}", grant.claim.id.bits());
        let (guid, sequence) = children[0].split_once(between).unwrap();
        assert_eq!((guid.strip_prefix(before).unwrap().replace('-', ""), sequence), (id, "0000000000"));
        let (data, stat) = look.get_data(&format!("{path}/{}", children[0])).await.unwrap();
        assert_eq!(data, b"host 7");
        assert!(stat.ephemeral_owner > 0);
        assert_eq!(u64::try_from(stat.czxid).unwrap(), grant.fencing_token.unwrap().value());
    }
}

/// The sequence starts anew with its parent; the token does not.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_although_the_parent_was_deleted_between_two_holds() {
    let ground = Ground::new();
    let (ours, look) = (ground.direct().await, ground.look().await);
    let mut tokens = Vec::new();
    for _ in 0..3 {
        for expected in ["0000000000", "0000000001"] {
            let grant = take(&ours, "parent").await;
            assert!(nodes(&look, "/hasp/parent").await[0].ends_with(expected));
            tokens.push(grant.fencing_token.unwrap());
            assert_eq!(ours.release(&grant).await.unwrap(), Release::Released);
        }
        look.delete("/hasp/parent", None).await.unwrap();
    }
    assert!(tokens.is_sorted_by(|before, after| before < after), "{tokens:?}");
}

/// The server looks for empty containers all the time, and the locks meet it.
#[tokio::test(flavor = "multi_thread")]
async fn empty_parents_are_removed_and_new_contenders_do_not_mind() {
    let builder = ZooKeeperEnsemble::builder(1).property("znode.container.checkIntervalMs", "2");
    let ensemble = builder.start().unwrap();
    let (ours, look) =
        (open(&ensemble.hosts(), Config::new()).await, connector().connect(&ensemble.hosts()).await.unwrap());
    let mut anew = 0;
    for round in 0..300 {
        let grant = take(&ours, "reaped").await;
        anew += u32::from(nodes(&look, "/hasp/reaped").await[0].ends_with("0000000000"));
        assert_eq!(ours.release(&grant).await.unwrap(), Release::Released);
        if round % 3 == 0 {
            tokio::time::sleep(millis(round % 10)).await;
        }
    }
    assert!(anew > 3, "the server has removed the parent only {anew} times, so nothing was shown");
    crate::ground::eventually("nothing is left", async || look.check_stat("/hasp").await.unwrap().is_none()).await;
}

/// Two that do not see each other would both hold the lock, so each says so instead.
#[tokio::test(flavor = "multi_thread")]
async fn a_contender_of_the_other_naming_is_an_error_and_is_left_alone() {
    let ground = Ground::new();
    let (curator, look) = (ground.direct().await, ground.look().await);
    let kazoo = open(&ground.ensemble.hosts(), Config::new().with_naming(Naming::Kazoo)).await;
    for (holder, other) in [(&curator, &kazoo), (&kazoo, &curator)] {
        let held = take(holder, "naming").await;
        let tried = other.try_acquire(&claim("naming")).await.unwrap_err();
        let waited = other.acquire(&claim("naming"), &lock_core::Stop::new()).await.unwrap_err();
        let looked = other.inspect(&held.claim.key).await.unwrap_err();
        let forced = other.force_release(&held.claim.key).await.unwrap_err();
        for error in [tried, waited, looked, forced] {
            assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
            assert!(error.to_string().contains("set the same naming on both sides"), "{error}");
        }
        assert_eq!(nodes(&look, "/hasp/naming").await.len(), 1, "only the holder's node is left");
        assert_eq!(holder.release(&held).await.unwrap(), Release::Released);
    }
}

/// What is no contender of either naming is nobody's place in line.
#[tokio::test(flavor = "multi_thread")]
async fn other_children_are_passed_over() {
    let ground = Ground::new();
    let (ours, look) = (ground.direct().await, ground.look().await);
    let free = CreateMode::Persistent.with_acls(Acls::anyone_all());
    look.mkdir("/hasp/strangers", &free).await.unwrap();
    for stranger in ["0", "-", "write-0000000000"] {
        look.create(&format!("/hasp/strangers/{stranger}"), b"", &free).await.unwrap();
    }
    let grant = take(&ours, "strangers").await;
    assert!(ours.list("").await.unwrap().contains(&grant.claim.key));
    assert_eq!(ours.release(&grant).await.unwrap(), Release::Released);
    assert_eq!(ours.list("").await.unwrap(), []);
    assert_eq!(ours.force_release(&grant.claim.key).await.unwrap(), Release::NotHeld);
}

/// On the server, not only in the table: all at once, each a lock of its own, and each found again.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_keys_are_locks_of_their_own() {
    for prefix in ["/hasp", ""] {
        let ground = Ground::new();
        let ours = open(&ground.ensemble.hosts(), Config::new().with_prefix(prefix)).await;
        // Directly below the root, `zookeeper` is the server's own.
        let mut expected = hostile_keys();
        expected.retain(|key| !prefix.is_empty() || key.as_str() != "zookeeper");
        let mut held = Vec::new();
        for key in &expected {
            held.push(take(&ours, key.as_str()).await);
        }
        let mut listed = ours.list("").await.unwrap();
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected);
        for grant in held {
            assert_eq!(ours.release(&grant).await.unwrap(), Release::Released);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_gives_everything_back() {
    let ground = Ground::new();
    let (ours, look) = (ground.direct().await, ground.look().await);
    let locks = locks(&ours);
    let guards =
        [locks.lock("one").unwrap().acquire().await.unwrap(), locks.lock("two").unwrap().acquire().await.unwrap()];
    locks.shutdown().await.unwrap();
    assert!(guards.iter().all(|guard| !guard.is_held()));
    assert!(nodes(&look, "/hasp/one").await.is_empty() && nodes(&look, "/hasp/two").await.is_empty());
    // The defaults ask for a session that this server does not grant; it gives what it can.
    let others = ZooKeeper::connect(&ground.ensemble.hosts()).await.unwrap();
    assert_eq!(others.try_acquire(&claim("one")).await.unwrap().unwrap().ttl, crate::ground::SESSION / 2);
}
