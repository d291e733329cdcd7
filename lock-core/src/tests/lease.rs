use super::store::{Step, Store};
use super::{TTL, locks, locks_with, ms, pass, settle, since};
use crate::clock::suspend;
use crate::{ErrorKind, Expiry, Lease, LossReason, LossSignal, Moment, Options, Release};

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_the_send_and_not_from_the_reply() {
    let store = Store::new();
    store.script("acquire", [Step::Slow(ms(0), ms(900))]);
    let start = Moment::now();
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    assert_eq!(since(start), ms(900));
    assert_eq!(guard.deadline().saturating_duration_since(start), ms(988));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_counts_from_its_own_send_when_its_reply_arrives() {
    let store = Store::new();
    store.script("renew", [Step::Slow(ms(0), ms(200))]);
    let start = Moment::now();
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    pass(ms(500)).await;
    // Sent at 333 ms, answered at 533.
    assert_eq!(guard.deadline().saturating_duration_since(start), ms(988));
    pass(ms(50)).await;
    let sent = store.calls("renew")[0].at.saturating_duration_since(start);
    assert!(sent >= ms(333) && sent <= ms(335), "{sent:?}");
    assert_eq!(guard.deadline().saturating_duration_since(start), sent + ms(988));
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_is_renewed_at_a_third_of_its_ttl() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    pass(TTL * 10).await;
    assert!(guard.is_held());
    let renewals = store.calls("renew");
    assert!((29..=31).contains(&renewals.len()), "{}", renewals.len());
    assert!(renewals.iter().all(|call| call.ttl == TTL));
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_loses_the_lock_at_the_deadline() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    store.always("renew", Step::RequestLost(ms(60_000)));
    let deadline = guard.deadline();
    let (watch, other) = (guard.watch(), guard.watch());
    let told = tokio::spawn(async move { (other.lost().await, Moment::now()) });
    pass(ms(987)).await;
    assert!(guard.is_held());
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(!guard.is_held() && !watch.is_held());
    let (reason, at) = told.await.unwrap();
    assert_eq!(reason, LossReason::Expired);
    assert!(at >= deadline && at.saturating_duration_since(deadline) <= ms(2));
    assert_eq!(guard.remaining(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_answered_after_the_deadline_revives_nothing_and_is_given_back() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    store.script("renew", [Step::Slow(ms(600), ms(200))]);
    pass(ms(1_100)).await;
    assert!(!guard.is_held());
    // The late renewal made the entry live on, so the keeper gave it back.
    settle().await;
    pass(ms(100)).await;
    assert!(!guard.is_held());
    assert_eq!(store.calls("release").len(), 1);
    assert!(!store.holds("k"));
}

#[tokio::test(start_paused = true)]
async fn every_error_but_not_ours_is_retried_until_the_deadline() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    store.script("renew", [Step::Refused, Step::Rejected, Step::RequestLost(ms(50)), Step::ReplyLost(ms(50))]);
    pass(TTL * 3).await;
    assert!(guard.is_held());
    assert!(store.calls("renew").len() >= 8);
}

#[tokio::test(start_paused = true)]
async fn not_ours_is_loss_at_once() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    store.seize("k", TTL * 100);
    let start = Moment::now();
    assert_eq!(guard.lost().await, LossReason::NotHeld);
    assert!(since(start) < ms(340), "{:?}", since(start));
    assert_eq!(guard.release().await.unwrap(), Release::NotHeld);
    assert!(store.holds("k"));
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_ends_at_its_deadline_without_a_renewal() {
    let store = Store::new();
    let lock = locks(&store).lock("k").unwrap().lease(Lease::fixed(TTL));
    let start = Moment::now();
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(since(start) >= ms(988) && since(start) <= ms(990));
    pass(TTL).await;
    // The store ends the entry by itself: nothing is owed.
    assert_eq!(store.operations(), ["acquire"]);
}

#[tokio::test(start_paused = true)]
async fn where_a_session_keeps_the_entry_the_keeper_gives_it_back() {
    let store = Store::new().with_guarantees(|guarantees| guarantees.expiry = Expiry::Session);
    let lock = locks(&store).lock("k").unwrap().lease(Lease::fixed(TTL));
    let guard = lock.acquire().await.unwrap();
    guard.lost().await;
    settle().await;
    assert_eq!(store.operations(), ["acquire", "release"]);
    assert!(!store.holds("k"));
    drop(guard);
    settle().await;
    assert_eq!(store.calls("release").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn extend_replaces_and_never_adds() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().lease(Lease::fixed(TTL)).acquire().await.unwrap();
    for _ in 0..100 {
        pass(ms(5)).await;
        guard.extend(TTL).await.unwrap();
        assert!(store.remaining("k").unwrap() <= TTL);
        assert!(guard.remaining() <= ms(988));
    }
    assert!(guard.is_held());
    assert!(guard.remaining() >= ms(980));
}

#[tokio::test(start_paused = true)]
async fn extend_to_less_is_local_and_the_keeper_gives_back_then() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().lease(Lease::fixed(TTL)).acquire().await.unwrap();
    guard.extend(ms(100)).await.unwrap();
    assert_eq!(store.operations(), ["acquire"]);
    assert_eq!(guard.remaining(), ms(97));
    assert_eq!(guard.lost().await, LossReason::Expired);
    settle().await;
    assert_eq!(store.operations(), ["acquire", "release"]);
    assert!(!store.holds("k"));
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_that_was_shortened_is_renewed_more_often_but_the_store_is_never_sent_less() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    guard.extend(ms(300)).await.unwrap();
    pass(TTL * 2).await;
    assert!(guard.is_held());
    assert!(guard.remaining() <= ms(295));
    let renewals = store.calls("renew");
    assert!(renewals.len() >= 18, "{}", renewals.len());
    assert!(renewals.iter().all(|call| call.ttl == TTL));
}

#[tokio::test(start_paused = true)]
async fn extend_of_a_lost_lock_says_lost_and_makes_nothing() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().lease(Lease::fixed(TTL)).acquire().await.unwrap();
    // Lost in the store only.
    store.clear("k");
    let error = guard.extend(TTL).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(!store.holds("k") && !guard.is_held());
    // Lost by its deadline: nothing is sent.
    let guard = locks(&store).lock("k").unwrap().lease(Lease::fixed(TTL)).acquire().await.unwrap();
    pass(TTL).await;
    let renewals = store.calls("renew").len();
    assert_eq!(guard.extend(TTL).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(store.calls("renew").len(), renewals);
}

#[tokio::test(start_paused = true)]
async fn an_extension_never_races_a_renewal() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    // In flight from 333 ms to 833 ms.
    store.script("renew", [Step::Slow(ms(250), ms(250))]);
    pass(ms(400)).await;
    guard.extend(TTL * 2).await.unwrap();
    assert_eq!(store.most_in_flight(), 1);
    assert!(guard.remaining() <= store.remaining("k").unwrap());
    assert_eq!(store.calls("renew").last().unwrap().ttl, TTL * 2);
    // From here on it is renewed with the new ttl.
    pass(TTL * 5).await;
    assert!(guard.is_held());
    assert!(store.calls("renew").iter().skip(1).all(|call| call.ttl == TTL * 2));
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_renewal_is_in_flight_joins_no_other_batch() {
    let store = Store::new();
    let locks = locks(&store);
    let slow = locks.lock("slow").unwrap().acquire().await.unwrap();
    store.script("renew", [Step::RequestLost(ms(60_000))]);
    // Due at 970 ms, close to the deadline of the other.
    pass(ms(637)).await;
    let other = locks.lock("other").unwrap().acquire().await.unwrap();
    pass(ms(345)).await;
    assert!(slow.is_held() && other.is_held());
    let batches: Vec<_> = store.calls("renew").iter().map(|call| (call.key.clone(), call.batch)).collect();
    assert_eq!(batches, [("slow".to_owned(), 1), ("other".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_extension_leaves_the_lease_as_it_was() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().lease(Lease::fixed(TTL)).acquire().await.unwrap();
    let deadline = guard.deadline();
    pass(ms(10)).await;
    store.script("renew", [Step::Refused]);
    let error = guard.extend(TTL).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(guard.deadline(), deadline);
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_was_refused_counts_for_nothing_and_one_that_may_have_taken_place_counts() {
    let store = Store::new();
    let guard = locks(&store).lock("k").unwrap().lease(Lease::fixed(TTL)).acquire().await.unwrap();
    pass(ms(10)).await;
    store.script("renew", [Step::Rejected, Step::Answer, Step::ReplyLost(ms(1)), Step::Answer]);
    guard.extend(TTL * 4).await.unwrap_err();
    guard.extend(TTL * 2).await.unwrap();
    guard.extend(TTL * 4).await.unwrap_err();
    guard.extend(TTL * 3).await.unwrap();
    let ttls: Vec<_> = store.calls("renew").iter().map(|call| call.ttl).collect();
    assert_eq!(ttls, [TTL * 4, TTL * 2, TTL * 4, TTL * 4]);
    assert!(guard.remaining() <= TTL * 3);
}

#[tokio::test(start_paused = true)]
async fn max_hold_is_a_loss_with_a_reason_of_its_own_at_once() {
    let store = Store::new();
    let locks = locks_with(&store, Options::new().with_max_hold(ms(1_500)));
    let start = Moment::now();
    let guard = locks.lock("k").unwrap().acquire().await.unwrap();
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    assert!(since(start) >= ms(1_500) && since(start) <= ms(1_502), "{:?}", since(start));
    settle().await;
    assert!(!store.holds("k"));
    let renewals = store.calls("renew").len();
    pass(TTL * 3).await;
    assert_eq!(store.calls("renew").len(), renewals);
    assert_eq!(guard.release().await.unwrap(), Release::NotHeld);
}

#[tokio::test(start_paused = true)]
async fn a_signal_of_the_backend_is_a_loss_at_once() {
    let store = Store::new();
    let signal = LossSignal::new();
    store.set_signal(&signal);
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    settle().await;
    let start = Moment::now();
    signal.fire();
    assert_eq!(guard.lost().await, LossReason::NotHeld);
    assert_eq!(since(start), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_suspend_counts_and_its_loss_is_noticed_within_a_second() {
    let store = Store::new();
    let lock = locks(&store).lock("k").unwrap().lease(Lease::renewed(TTL * 60));
    let guard = lock.acquire().await.unwrap();
    let started = tokio::time::Instant::now();
    let noticed = tokio::spawn({
        let watch = guard.watch();
        async move { (watch.lost().await, started.elapsed()) }
    });
    settle().await;
    suspend::machine(TTL * 3_600);
    let (reason, after) = noticed.await.unwrap();
    assert_eq!(reason, LossReason::Expired);
    assert!(after > ms(0) && after <= ms(1_001), "{after:?}");
    assert!(!guard.is_held());
    // The keeper has noticed as well: the next task of this process may contend.
    store.clear("k");
    pass(ms(10)).await;
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_ttl_out_of_range_is_refused_before_anything_is_sent() {
    let store = Store::new();
    let lock = locks(&store).lock("k").unwrap();
    for ttl in [ms(0), ms(9), std::time::Duration::MAX] {
        for lease in [Lease::fixed(ttl), Lease::renewed(ttl)] {
            let lock = lock.clone().lease(lease);
            for error in [
                lock.acquire().await.unwrap_err(),
                lock.acquire_within(ms(10)).await.unwrap_err(),
                lock.try_acquire().await.unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            }
        }
    }
    assert!(store.operations().is_empty());
    let guard = lock.acquire().await.unwrap();
    for ttl in [ms(0), ms(9), std::time::Duration::MAX] {
        assert_eq!(guard.extend(ttl).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert!(guard.is_held());
    assert_eq!(store.operations(), ["acquire"]);
}

#[tokio::test(start_paused = true)]
async fn a_guard_is_never_handed_out_past_its_deadline() {
    let store = Store::new();
    store.script("acquire", [Step::Slow(ms(10), ms(990))]);
    let guard = locks(&store).lock("k").unwrap().acquire().await.unwrap();
    assert!(guard.is_held() && guard.remaining() > ms(900));
    let acquires = store.calls("acquire");
    assert_ne!(acquires[0].claim, acquires[1].claim, "the late grant is given back, so its claim is spent");
    settle().await;
    assert_eq!(store.calls("release")[0].claim, acquires[0].claim);
    assert!(store.holds("k"));
}

#[test]
fn what_a_user_holds_can_be_sent_to_another_thread() {
    fn send_static<T: Send + 'static>(_: &T) {}
    fn send<T: Send>(_: T) {}
    let store = Store::new();
    let locks = locks(&store);
    let lock = locks.lock("k").unwrap();
    send_static(&locks);
    send_static(&lock);
    send(lock.acquire());
    send(lock.acquire_within(TTL));
    send(lock.try_acquire());
    send(lock.run(async |guard| guard.is_held()));
    send(locks.shutdown());
    let _compiles = |guard: crate::LockGuard| {
        send_static(&guard);
        send_static(&guard.watch());
        send(guard.lost());
        send(guard.extend(TTL));
        send(guard.watch().lost());
        send(guard.release());
    };
}
