//! A store that is away, slow, full, or has forgotten.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Backend, ErrorKind, Lease, Locks, LossReason, Moment, Options, Owner, Release, Renew, Stop};
use lock_redis::{Config, Connection, Token, TokenOptions, Unlock};
use lock_testkit::fault::Request;

use crate::ground::{Ground, ROOM, Requests, fixed, key_of, millis, renewed, soon, take, until};

#[tokio::test]
async fn a_holder_behind_a_black_hole_is_lost_on_time() {
    let ground = Ground::new();
    for backend in ground.both(millis(400)).await {
        let ttl = millis(800);
        let sent_before = Moment::now();
        let locks = renewed(&backend, ttl);
        let guard = soon(locks.lock("a").unwrap().acquire()).await.unwrap();
        let last_renewal_sent_by = Moment::now();
        assert!(guard.deadline() >= sent_before);
        ground.proxy.black_hole();
        assert_eq!(soon(guard.lost()).await, LossReason::Expired);
        assert!(!guard.is_held());
        assert!(guard.deadline() <= last_renewal_sent_by.saturating_add(ttl));
        ground.proxy.heal();
        until("the key is gone", || !ground.exists(&key_of(&*backend, "a"))).await;
    }
}

#[tokio::test]
async fn every_call_ends_in_bounded_time_behind_a_black_hole() {
    let ground = Ground::new();
    let limit = millis(400);
    let config = Config::new().with_request_limit(limit);
    let [token, reentrant] = ground.both(limit).await;
    for backend in [token, reentrant, unlocking_by_watch(&ground, limit).await] {
        let grant = take(&*backend, "a", millis(60_000)).await;
        let (claim, key) = (&grant.claim, &grant.claim.key);
        ground.proxy.black_hole();
        let errors = [
            soon(backend.try_acquire(claim)).await.map(drop).unwrap_err(),
            soon(backend.acquire(claim, &Stop::new())).await.map(drop).unwrap_err(),
            soon(backend.renew(&[Renew::new(&grant, millis(60_000))])).await.remove(0).map(drop).unwrap_err(),
            soon(backend.inspect(key)).await.map(drop).unwrap_err(),
            soon(backend.list("")).await.map(drop).unwrap_err(),
            soon(backend.force_release(key)).await.map(drop).unwrap_err(),
            soon(backend.release(&grant)).await.map(drop).unwrap_err(),
            soon(backend.abandon(claim)).await.map(drop).unwrap_err(),
        ];
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::Unavailable), "{errors:?}");
        soon(backend.close()).await.unwrap();
        soon(Connection::open(&ground.url_behind(), config.clone())).await.unwrap_err();
        ground.proxy.heal();
        ground.server.command::<()>(&["FLUSHALL"]).unwrap();
    }
}

#[tokio::test]
async fn the_work_of_run_is_cancelled_behind_a_black_hole() {
    let ground = Ground::new();
    let backend = ground.token(millis(400)).await;
    let lock = renewed(&backend, millis(800)).lock("a").unwrap();
    let proxy = &ground.proxy;
    let work = lock.run(async |_guard: &lock_core::LockGuard| {
        proxy.black_hole();
        std::future::pending::<()>().await;
    });
    assert_eq!(soon(work).await.unwrap_err().kind(), ErrorKind::Lost);
    ground.proxy.heal();
}

#[tokio::test]
async fn a_server_that_is_away_for_less_than_the_lease_costs_nothing() {
    let ground = Ground::new();
    for backend in ground.both(millis(400)).await {
        let ttl = millis(3_000);
        let guard = soon(renewed(&backend, ttl).lock("a").unwrap().acquire()).await.unwrap();
        ground.proxy.refuse_connections();
        ground.proxy.cut_connections();
        // Past the first renewal, which fails.
        tokio::time::sleep(ttl / 2).await;
        assert!(guard.is_held());
        ground.proxy.accept_connections().unwrap();
        tokio::time::sleep(ttl).await;
        assert!(guard.is_held());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_server_that_stands_still_for_less_than_the_lease_costs_nothing() {
    let ground = Ground::new();
    for backend in ground.both(millis(400)).await {
        let ttl = millis(3_000);
        let guard = soon(renewed(&backend, ttl).lock("a").unwrap().acquire()).await.unwrap();
        ground.server.stop().unwrap();
        tokio::time::sleep(ttl / 2).await;
        ground.server.cont().unwrap();
        tokio::time::sleep(ttl).await;
        assert!(guard.is_held());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_restart_without_memory_is_a_loss_at_the_next_renewal() {
    let ground = Ground::new();
    for backend in ground.both(millis(500)).await {
        let guard = soon(renewed(&backend, millis(2_000)).lock("a").unwrap().acquire()).await.unwrap();
        ground.server.restart().unwrap();
        assert_eq!(soon(guard.lost()).await, LossReason::NotHeld);
        let next = soon(renewed(&backend, millis(2_000)).lock("a").unwrap().acquire()).await.unwrap();
        assert_eq!(next.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn forgotten_scripts_are_sent_again() {
    let ground = Ground::new();
    let flush = || ground.server.command::<()>(&["SCRIPT", "FLUSH"]).unwrap();
    for backend in ground.both(ROOM).await {
        let locks = fixed(&backend, millis(30_000));
        flush();
        let guards =
            [locks.lock("a").unwrap().acquire().await.unwrap(), locks.lock("b").unwrap().acquire().await.unwrap()];
        flush();
        for guard in &guards {
            guard.extend(millis(40_000)).await.unwrap();
        }
        flush();
        for guard in guards {
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        take(&*backend, "c", millis(30_000)).await;
        flush();
        assert_eq!(backend.force_release(locks.lock("c").unwrap().key()).await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_batch_of_renewals_survives_forgotten_scripts() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        let mut grants = Vec::new();
        for number in 0..600 {
            grants.push(take(&*backend, &format!("{number}"), millis(30_000)).await);
        }
        assert_eq!(backend.release(&grants[7]).await.unwrap(), Release::Released);
        ground.server.command::<()>(&["SCRIPT", "FLUSH"]).unwrap();
        let batch: Vec<_> = grants.iter().map(|grant| Renew::new(grant, millis(40_000))).collect();
        for (number, answer) in backend.renew(&batch).await.into_iter().enumerate() {
            if number == 7 {
                assert_eq!(answer.unwrap_err().kind(), ErrorKind::Lost);
            } else {
                answer.unwrap();
                assert!(ground.pttl(&key_of(&*backend, &number.to_string())) > 30_000);
            }
        }
    }
}

#[tokio::test]
async fn a_full_server_renews_and_releases_and_grants_nothing() {
    let ground = Ground::new();
    let [token, reentrant] = ground.both(ROOM).await;
    for backend in [token, reentrant, unlocking_by_watch(&ground, ROOM).await] {
        let owner = Owner::random();
        let locks = fixed(&backend, millis(30_000));
        let held = locks.lock("a").unwrap().acquire().await.unwrap();
        let mut nested = Vec::new();
        if backend.guarantees().reentrant {
            let lock = locks.lock("n").unwrap().owner(&owner);
            nested = vec![lock.acquire().await.unwrap(), lock.acquire().await.unwrap()];
        }
        ground.server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();

        let refused = backend.try_acquire(&crate::ground::claim("b", millis(30_000))).await.unwrap_err();
        assert_eq!((refused.kind(), refused.effect()), (ErrorKind::Rejected, lock_core::Effect::None));
        assert!(refused.to_string().contains("raise maxmemory"), "{refused}");
        held.extend(millis(40_000)).await.unwrap();
        assert!(ground.pttl(&key_of(&*backend, "a")) > 30_000);
        assert_eq!(held.release().await.unwrap(), Release::Released);
        for guard in nested {
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        ground.server.command::<()>(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        for name in ["a", "b", "n"] {
            assert!(!ground.exists(&key_of(&*backend, name)), "{name}");
        }
    }
}

#[tokio::test]
async fn five_waiters_of_a_store_that_goes_away_are_all_told_in_time() {
    let ground = Ground::new();
    for backend in ground.both(millis(400)).await {
        let holder = take(&*backend, "a", millis(60_000)).await;
        let patience = millis(1_000);
        let options = Options::new().with_unavailable_after(patience);
        let locks = Locks::with_options(Arc::clone(&backend), options);
        let waiters: Vec<_> = (0..5)
            .map(|_| {
                let lock = locks.lock("a").unwrap();
                tokio::spawn(async move { lock.acquire().await.map(|_| ()) })
            })
            .collect();
        let channel =
            if backend.guarantees().reentrant { "redisson_lock__channel:{a}" } else { "hasp-released:{hasp:a}" };
        until("one waits at the server", || {
            ground.server.command::<(String, u64)>(&["PUBSUB", "NUMSUB", channel]).unwrap().1 == 1
        })
        .await;
        ground.proxy.refuse_connections();
        ground.proxy.cut_connections();
        let gone_at = Moment::now();
        for waiter in waiters {
            assert_eq!(soon(waiter).await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
        }
        // A waiter that sleeps asks again within its floor of 0.8 s, unless the lost connection wakes it, as it should.
        let took = Moment::now().saturating_duration_since(gone_at);
        assert!(took < patience + millis(1_000), "{took:?}");
        ground.proxy.accept_connections().unwrap();
        let _gone = holder;
        ground.server.command::<()>(&["FLUSHALL"]).unwrap();
    }
}

#[tokio::test]
async fn a_connection_that_is_dead_without_a_sign_is_replaced() {
    let ground = Ground::new();
    for backend in ground.both(millis(1_000)).await {
        let dead = ground.proxy.when(Request::command("EVALSHA")).hold_request();
        let error = backend.try_acquire(&crate::ground::claim("a", millis(500))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, lock_core::Effect::Unknown));
        soon(dead.seen()).await;
        // The rule holds everything behind that request on its connection, so this can only come over another one.
        let grant = take(&*backend, "b", millis(30_000)).await;
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_server_that_turned_us_away_once_is_asked_again() {
    let ground = Ground::new();
    for backend in ground.both(millis(500)).await {
        ground.server.command::<()>(&["CONFIG", "SET", "requirepass", "changed"]).unwrap();
        ground.proxy.cut_connections();
        let refused = loop {
            let error = backend.try_acquire(&crate::ground::claim("a", millis(30_000))).await.unwrap_err();
            if error.kind() != ErrorKind::Unavailable {
                break error;
            }
        };
        assert_eq!(refused.kind(), ErrorKind::Rejected, "{refused}");
        ground.server.command::<()>(&["CONFIG", "SET", "requirepass", ""]).unwrap();
        until("the server is asked again", || ground.proxy.connections() > 1).await;
        let locks = Locks::with_options(Arc::clone(&backend), Options::new().with_lease(Lease::fixed(millis(5_000))));
        let guard = loop {
            if let Ok(guard) = locks.lock("a").unwrap().acquire().await {
                break guard;
            }
        };
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn the_first_request_after_an_outage_succeeds() {
    let ground = Ground::new();
    for backend in ground.both(ROOM).await {
        ground.proxy.refuse_connections();
        ground.proxy.cut_connections();
        let mut seen_refused = false;
        while !seen_refused {
            let error = backend.try_acquire(&crate::ground::claim("a", millis(500))).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            seen_refused = error.effect() == lock_core::Effect::None;
        }
        // The client tries once more by itself, and is refused again.
        tokio::time::sleep(millis(200)).await;
        ground.proxy.accept_connections().unwrap();
        // The client still remembers the refusal; nothing was sent then, so it is asked again before we say so.
        let grant = take(&*backend, "b", millis(5_000)).await;
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn requests_behind_a_refusing_server_have_had_no_effect() {
    let ground = Ground::new();
    let requests = Requests::of(&*ground.token(ROOM).await);
    let backend = ground.token(ROOM).await;
    let cut = ground.proxy.when(requests.acquire).cut();
    let error = backend.try_acquire(&crate::ground::claim("a", millis(500))).await.unwrap_err();
    // It may have been sent before the connection was lost: nobody knows.
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, lock_core::Effect::Unknown));
    assert_eq!(cut.times_seen(), 1);
}

/// A token backend that unlocks on a pool's connections.
async fn unlocking_by_watch(ground: &Ground, limit: Duration) -> Arc<dyn Backend> {
    let pool = deadpool_redis::Config::from_url(ground.url_behind());
    let pool = pool.create_pool(Some(deadpool_redis::Runtime::Tokio1)).unwrap();
    let pooled = Connection::from_pool(pool, Config::new().with_request_limit(limit)).await.unwrap();
    Arc::new(Token::new(pooled, TokenOptions::new().with_unlock(Unlock::Watch)).await.unwrap())
}
