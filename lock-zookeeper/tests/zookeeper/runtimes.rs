//! A session lives on the runtime that it was made in, and the backend may outlive that.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{ErrorKind, Release, Renew, Stop};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::ground::{Ground, ROOM, claim, eventually, take};

#[test]
fn a_session_whose_runtime_has_ended_is_replaced_and_panics_nobody() {
    let ground = Ground::new();
    let [first, second] = [(); 2].map(|()| Runtime::new().unwrap());
    let ours = first.block_on(ground.direct());
    let held = first.block_on(take(&ours, "mine"));
    let theirs = second.block_on(ground.direct());
    let busy = second.block_on(take(&theirs, "busy"));
    let waiting = Stop::new();
    let wait = second.spawn({
        let (ours, waiting) = (Arc::clone(&ours), waiting.clone());
        async move { ours.acquire(&claim("busy"), &waiting).await }
    });
    second.block_on(eventually("it waits", async || waiting.is_waiting()));
    first.shutdown_timeout(Duration::from_secs(5));

    second.block_on(async {
        let error = timeout(ROOM, wait).await.expect("the wait ends").expect("nobody panics").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let renewal = ours.renew(&[Renew::new(&held, held.ttl)]).await.remove(0);
        assert_eq!(renewal.unwrap_err().kind(), ErrorKind::Unavailable);
        // By the new session, unless the server has ended the old one meanwhile.
        let _gone_or_not = ours.release(&held).await.unwrap();
        let again = take(&ours, "mine").await;
        assert_eq!(ours.release(&again).await.unwrap(), Release::Released);
        assert_eq!(theirs.release(&busy).await.unwrap(), Release::Released);
        let grant = timeout(ROOM, ours.acquire(&claim("busy"), &Stop::new())).await.unwrap();
        assert_eq!(ours.release(&grant.unwrap().unwrap()).await.unwrap(), Release::Released);
    });
}
