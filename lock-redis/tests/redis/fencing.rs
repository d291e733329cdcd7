//! Tokens grow, whatever happens to the data.

use lock_core::{FencingToken, Lease, Owner, Release};

use crate::ground::{Ground, ROOM, fixed, millis, take};

#[tokio::test]
async fn tokens_grow_over_a_thousand_hand_overs_a_flush_and_a_restart() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let mut last = FencingToken::new(0);
        let mut next = async || {
            let grant = take(&*backend, "a", millis(30_000)).await;
            let token = grant.fencing_token.unwrap();
            assert!(token > last, "{token} after {last}");
            assert!(token.value() < 1 << 53);
            last = token;
            assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
        };
        for _ in 0..1_000 {
            next().await;
        }
        ground.server.command::<()>(&["FLUSHALL"]).unwrap();
        next().await;
        ground.server.restart().unwrap();
        // The first request may still meet the old connection.
        while backend.inspect(fixed(&backend, millis(500)).lock("a").unwrap().key()).await.is_err() {}
        next().await;
    }
}

#[tokio::test]
async fn a_token_is_one_more_than_the_last_where_the_clock_lags() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let fence = if backend.guarantees().reentrant { "hasp-fence:{a}" } else { "hasp-fence:{hasp:a}" };
        // 2^52: far ahead of any clock, and of what Lua's own number format writes without loss.
        ground.server.command::<()>(&["SET", fence, "4503599627370496"]).unwrap();
        for expected in [4_503_599_627_370_497, 4_503_599_627_370_498] {
            let grant = take(&*backend, "a", millis(30_000)).await;
            assert_eq!(grant.fencing_token, Some(FencingToken::new(expected)));
            assert_eq!(ground.server.command::<u64>(&["GET", fence]).unwrap(), expected);
            assert!((86_400_000 + 20_000..=86_400_000 + 30_000).contains(&ground.pttl(fence)));
            assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
        }
        ground.server.command::<()>(&["FLUSHALL"]).unwrap();
    }
}

#[tokio::test]
async fn a_token_stays_the_same_on_re_entry() {
    let ground = Ground::new();
    let backend = ground.reentrant(ROOM).await;
    let lock = fixed(&backend, millis(30_000)).lock("a").unwrap().owner(&Owner::random());
    let outer = lock.acquire().await.unwrap();
    let inner = lock.clone().lease(Lease::fixed(millis(40_000))).acquire().await.unwrap();
    assert_eq!(outer.fencing_token(), inner.fencing_token());
}
