//! Replies that are lost (S60): the node's GUID finds it again.

use std::time::Duration;

use lock_core::{Effect, ErrorKind, Release, Undone};
use lock_testkit::fault::Direction;

use crate::ground::{Ground, ROOM, claim, eventually, locks, make_path, make_quiet, nodes};

/// Sends an acquire whose reply is lost with its connection, once the node exists.
async fn lose_the_reply(ground: &Ground, name: &str, acquiring: impl Future) {
    let look = ground.look().await;
    ground.proxy.set_delay(Direction::ToClient, Duration::from_secs(600));
    let losing = async {
        eventually("the node is made", async || !nodes(&look, &format!("/hasp/{name}")).await.is_empty()).await;
        ground.proxy.set_delay(Direction::ToClient, Duration::ZERO);
        ground.proxy.cut_connections();
    };
    tokio::join!(acquiring, losing);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_whose_reply_was_lost_is_found_again_and_locks_nobody_out() {
    let ground = Ground::new();
    let (ours, look) = (ground.proxied().await, ground.look().await);
    make_path(&ours, "lost").await;
    make_quiet(&ours, "lost-quiet").await;

    for name in ["lost", "lost-quiet"] {
        let (claim, path) = (claim(name), format!("/hasp/{name}"));
        lose_the_reply(&ground, name, async {
            let error = ours.try_acquire(&claim).await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{error}");
        })
        .await;
        let first = nodes(&look, &path).await;
        assert_eq!(first.len(), 1);
        let (_, stat) = look.get_data(&format!("{path}/{}", first[0])).await.unwrap();

        let grant = ours.try_acquire(&claim).await.unwrap().expect("it finds its own node");
        assert_eq!(nodes(&look, &path).await, first, "one node, and still the first");
        assert_eq!(grant.fencing_token.unwrap().value(), u64::try_from(stat.czxid).unwrap());
        assert_eq!(ours.release(&grant).await.unwrap(), Release::Released);
        assert!(nodes(&look, &path).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_locks_does_not_notice_a_lost_reply() {
    let ground = Ground::new();
    let (ours, look) = (ground.proxied().await, ground.look().await);
    make_path(&ours, "quiet").await;
    let lock = locks(&ours).lock("quiet").unwrap();

    let mut guard = None;
    lose_the_reply(&ground, "quiet", async { guard = Some(lock.acquire_within(ROOM).await.unwrap()) }).await;
    let guard = guard.unwrap();
    assert!(guard.is_held());
    assert_eq!(nodes(&look, "/hasp/quiet").await.len(), 1);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    eventually("nothing is left", async || nodes(&look, "/hasp/quiet").await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoning_a_lost_create_is_settled_in_its_own_session_and_in_no_other() {
    let ground = Ground::new();
    let (ours, theirs, look) = (ground.proxied().await, ground.direct().await, ground.look().await);
    make_path(&ours, "undo").await;

    for (undoing, undone) in [(&ours, Undone::Settled), (&theirs, Undone::MayStillLand)] {
        let claim = claim("undo");
        lose_the_reply(&ground, "undo", async { ours.try_acquire(&claim).await.unwrap_err() }).await;
        assert_eq!(undoing.abandon(&claim).await.unwrap(), undone);
        assert!(nodes(&look, "/hasp/undo").await.is_empty());
    }
}
