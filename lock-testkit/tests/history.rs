//! Each check on histories written by hand, good and bad ones.

#![allow(clippy::unwrap_used, reason = "the functions below are for tests only")]

use std::time::Duration;

use lock_core::{Effect, FencingToken, Moment, Release};
use lock_testkit::history::{
    Event, GuardedCounter, History, Observable, Op, Phase, Violation, read_jsonl, write_jsonl,
};
use serde_json::{Map, Value, json};

/// Reads lines of `time actor operation phase name=number ...`; the key is `k` unless it is named.
fn events(lines: &str) -> Vec<Event> {
    let jsonl: String = lines
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let mut event = Map::new();
            event.insert("t_ns".into(), json!(words[0].parse::<u64>().unwrap()));
            event.insert("key".into(), json!("k"));
            for (field, word) in ["actor", "op", "phase"].into_iter().zip(&words[1..]) {
                event.insert(field.into(), json!(word));
            }
            for word in &words[4..] {
                let (field, value) = word.split_once('=').unwrap();
                let field = if field == "deadline" { "deadline_ns" } else { field };
                let value = value.parse::<u64>().map_or_else(|_| json!(value), |number| json!(number));
                event.insert(field.into(), value);
            }
            Value::Object(event).to_string() + "\n"
        })
        .collect();
    read_jsonl(jsonl.as_bytes()).unwrap()
}

/// The times of the events that show each violation.
fn times(observable: Observable, lines: &str) -> Vec<Vec<u64>> {
    let mut events = events(lines);
    let found = observable.find(&events);
    events.reverse();
    assert_eq!(observable.find(&events), found, "the order of the lines does not matter");
    found.iter().map(|Violation { events, .. }| events.iter().map(|event| event.t_ns).collect()).collect()
}

#[track_caller]
fn assert_good(observable: Observable, lines: &str) {
    assert_eq!(times(observable, lines), Vec::<Vec<u64>>::new());
}

#[test]
fn two_holders_at_once_overlap() {
    let lines = "
        10 a acquire ok hold=1 deadline=100
        20 b acquire ok hold=2 deadline=100
        30 a release invoke hold=1
        40 b release invoke hold=2";
    assert_eq!(times(Observable::RawOverlap, lines), [[10, 20, 30, 40]]);
    assert_eq!(times(Observable::InLeaseOverlap, lines), [[10, 20, 30, 40]]);
}

#[test]
fn holders_one_after_the_other_do_not_overlap() {
    for lines in [
        "10 a acquire ok hold=1 deadline=100
         20 a release invoke hold=1
         20 b acquire ok hold=2 deadline=100",
        "10 a acquire ok hold=1 deadline=100
         20 a stop ok hold=1
         30 b acquire ok hold=2 deadline=100",
        // The process was killed.
        "10 a acquire ok hold=1 deadline=100
         20 a stop ok
         30 b acquire ok hold=2 deadline=100",
        "10 a acquire ok hold=1 deadline=100
         15 b acquire ok hold=2 deadline=100 key=other",
        // An owner may hold twice.
        "10 a acquire ok hold=1 deadline=100 owner=o
         15 b acquire ok hold=2 deadline=100 owner=o",
        // It was never granted.
        "10 a acquire ok hold=1 deadline=100
         15 b acquire busy hold=2",
    ] {
        assert_good(Observable::RawOverlap, lines);
        assert_good(Observable::InLeaseOverlap, lines);
    }
}

#[test]
fn a_hold_past_its_deadline_overlaps_raw_only() {
    let lines = "
        10 a acquire ok hold=1 deadline=50
        60 b acquire ok hold=2 deadline=100
        70 a release invoke hold=1";
    assert_eq!(times(Observable::RawOverlap, lines), [[10, 60, 70]]);
    assert_good(Observable::InLeaseOverlap, lines);
}

#[test]
fn a_renewal_moves_the_deadline_unless_it_came_too_late() {
    let with =
        |renewal: &str| format!("10 a acquire ok hold=1 deadline=50\n{renewal}\n70 b acquire ok hold=2 deadline=100");
    assert_eq!(times(Observable::InLeaseOverlap, &with("40 a renew ok hold=1 deadline=90")), [[10, 70]]);
    assert_good(Observable::InLeaseOverlap, &with("55 a renew ok hold=1 deadline=90"));
    assert_good(Observable::InLeaseOverlap, &with("40 a renew unknown hold=1 deadline=90"));
    // Shortened by an extension, and lost by a renewal.
    assert_good(Observable::InLeaseOverlap, &with("40 a renew ok hold=1 deadline=45"));
    let lost = "40 a renew ok hold=1 deadline=90\n60 a renew not_held hold=1\n65 a renew ok hold=1 deadline=99";
    assert_good(Observable::InLeaseOverlap, &with(lost));
}

#[test]
fn an_overlap_is_found_behind_short_holds_and_holds_of_the_same_owner() {
    let lines = "
        10 a acquire ok hold=1 deadline=900
        20 b acquire ok hold=2 deadline=900
        21 b release invoke hold=2
        30 c acquire ok hold=3 deadline=900
        31 c release invoke hold=3";
    assert_eq!(times(Observable::RawOverlap, lines), [[10, 20, 21], [10, 30, 31]]);
    let lines = "
        10 a acquire ok hold=1 deadline=500 owner=o
        20 b acquire ok hold=2 deadline=400 owner=p
        30 c acquire ok hold=3 deadline=900 owner=o
        40 d acquire ok hold=4 deadline=900 owner=o";
    assert_eq!(times(Observable::InLeaseOverlap, lines), [[10, 20], [20, 30], [20, 40]]);
    let lines = "
        10 a acquire ok hold=1 deadline=500 owner=o
        20 b acquire ok hold=2 deadline=900 owner=p
        30 c acquire ok hold=3 deadline=900 owner=p";
    assert_eq!(times(Observable::InLeaseOverlap, lines), [[10, 20], [10, 30]]);
    // An actor that ended before begins anew.
    let lines = "5 a stop ok\n 10 a acquire ok hold=1\n 20 b acquire ok hold=2";
    assert_eq!(times(Observable::RawOverlap, lines), [[10, 20]]);
}

#[test]
fn tokens_grow_in_the_order_of_the_grants() {
    let second = |token: u64| {
        format!(
            "10 a acquire invoke hold=1
             20 a acquire ok hold=1 token=7
             30 b acquire invoke hold=2
             40 b acquire ok hold=2 token={token}"
        )
    };
    assert_good(Observable::TokenRegression, &second(8));
    assert_eq!(times(Observable::TokenRegression, &second(7)), [[20, 30, 40]]);
    assert_eq!(times(Observable::TokenRegression, &second(6)), [[20, 30, 40]]);
    // With a greater one from another key in between, and with a good one in between.
    assert_good(Observable::TokenRegression, &(second(8) + "\n25 c acquire ok hold=3 token=99 key=other"));
    let lines = second(9) + "\n50 c acquire invoke hold=3\n60 c acquire ok hold=3 token=8";
    assert_eq!(times(Observable::TokenRegression, &lines), [[40, 50, 60]]);
}

#[test]
fn tokens_of_grants_that_were_under_way_together_may_come_in_any_order_but_differ() {
    let second = |token: u64, owner: &str| {
        format!(
            "10 a acquire invoke hold=1
             20 b acquire invoke hold=2
             30 b acquire ok hold=2 token=7 owner=o
             40 a acquire ok hold=1 token={token} owner={owner}"
        )
    };
    assert_good(Observable::TokenRegression, &second(6, "p"));
    assert_good(Observable::TokenRegression, &second(8, "p"));
    assert_good(Observable::TokenRegression, &second(7, "o"));
    assert_eq!(times(Observable::TokenRegression, &second(7, "p")).len(), 1);
}

#[test]
fn an_update_is_lost_when_another_writes_between_read_and_write() {
    let lines = "
        10 a read ok value=0
        20 b read ok value=0
        30 b write ok value=1
        40 a write ok value=1";
    assert_eq!(times(Observable::LostUpdate, lines), [[10, 30, 40]]);
    assert_good(Observable::LostUpdate, "10 a read ok\n 20 a write ok\n 30 b read ok\n 40 b write ok");
    assert_good(Observable::LostUpdate, "10 a read ok\n 20 b write ok key=other\n 30 a write ok");
    assert_good(Observable::LostUpdate, "10 a read ok\n 20 b write fail\n 30 a write ok");
    assert_good(Observable::LostUpdate, "10 a write ok\n 20 b write ok");
}

#[test]
fn a_fenced_resource_must_not_accept_an_older_token() {
    let third = |phase: &str| {
        format!("10 a write ok token=1\n20 b write ok token=2\n21 b write ok token=2\n30 a write {phase} token=1")
    };
    assert_eq!(times(Observable::StaleWriteAccepted, &third("ok")), [[20, 30]]);
    assert_good(Observable::StaleWriteAccepted, &third("fail"));
}

#[test]
fn a_probe_that_does_not_succeed_in_time_is_stuck() {
    let outcome = |outcome: &str| format!("10 p probe invoke deadline=100\n{outcome}");
    assert_good(Observable::Stuck, &outcome("100 p probe ok"));
    assert_eq!(times(Observable::Stuck, &outcome("101 p probe ok")), [[10, 101]]);
    assert_eq!(times(Observable::Stuck, &outcome("90 p probe busy")), [[10, 90]]);
    assert_eq!(times(Observable::Stuck, &outcome("90 q probe ok")), [[10]]);
}

#[test]
fn a_lock_that_is_gone_before_its_deadline_was_stolen() {
    let answer = |answer: &str| format!("10 a acquire ok hold=1 deadline=50\n{answer}");
    assert_eq!(times(Observable::Stolen, &answer("40 a renew not_held hold=1")), [[10, 40]]);
    assert_eq!(
        times(Observable::Stolen, &answer("30 a release invoke hold=1\n 40 a release not_held hold=1")),
        [[10, 40]]
    );
    let renewed = "30 a renew ok hold=1 deadline=90\n 60 a renew not_held hold=1";
    assert_eq!(times(Observable::Stolen, &answer(renewed)), [[10, 60]]);

    assert_good(Observable::Stolen, &answer("50 a renew not_held hold=1"));
    assert_good(Observable::Stolen, &answer("30 a release invoke hold=1\n 60 a release not_held hold=1"));
    assert_good(Observable::Stolen, &answer("30 a release invoke hold=1\n 40 a release ok hold=1"));
    // Its own release was faster than its renewal, and its first release worked although the reply was lost.
    assert_good(
        Observable::Stolen,
        &answer("30 a release invoke hold=1\n 35 a renew not_held hold=1\n 40 a release ok hold=1"),
    );
    assert_good(
        Observable::Stolen,
        &answer("30 a release invoke hold=1\n 35 a release unknown hold=1\n 40 a release not_held hold=1"),
    );
}

#[test]
fn a_release_must_not_claim_what_was_anothers() {
    let answer = |answer: &str, b_deadline: u64| {
        format!(
            "10 a acquire ok hold=1 deadline=50
             60 b acquire ok hold=2 deadline={b_deadline}
             70 a release invoke hold=1
             80 a release {answer} hold=1"
        )
    };
    assert_eq!(times(Observable::DishonestOutcome, &answer("ok", 100)), [[10, 60, 80]]);
    assert_good(Observable::DishonestOutcome, &answer("not_held", 100));
    assert_good(Observable::DishonestOutcome, &answer("unknown", 100));
    // The other's lease may have been over by then, too.
    assert_good(Observable::DishonestOutcome, &answer("ok", 75));
    // Both within their leases: an overlap, and no telling whose it was.
    let lines = answer("ok", 100).replace("deadline=50", "deadline=100");
    assert_good(Observable::DishonestOutcome, &lines);
    // Past the deadline, but the entry was still there.
    assert_good(
        Observable::DishonestOutcome,
        "10 a acquire ok hold=1 deadline=50\n 60 a release invoke hold=1\n 70 a release ok hold=1",
    );
}

#[test]
fn a_lock_is_not_released_after_it_was_told_to_be_gone() {
    let answers = |answers: &str| format!("10 a acquire ok hold=1 deadline=50\n{answers}");
    for bad in [
        "20 a renew not_held hold=1\n 30 a release invoke hold=1\n 40 a release ok hold=1",
        "20 a release invoke hold=1\n 30 a release ok hold=1\n 40 a release ok hold=1",
        "20 a release invoke hold=1\n 30 a release not_held hold=1\n 40 a release ok hold=1",
    ] {
        assert_eq!(times(Observable::DishonestOutcome, &answers(bad)).len(), 1, "{bad}");
    }
    for good in [
        "20 a release invoke hold=1\n 30 a release unknown hold=1\n 40 a release ok hold=1",
        "20 a release invoke hold=1\n 25 a renew not_held hold=1\n 40 a release ok hold=1",
        "20 a release invoke hold=1\n 30 a release ok hold=1\n 40 a release not_held hold=1",
    ] {
        assert_good(Observable::DishonestOutcome, &answers(good));
    }
}

#[test]
fn a_refused_lock_must_not_be_ours() {
    let outcome = |phase: &str| format!("10 a acquire invoke hold=1\n20 a acquire {phase} hold=1\n30 a inspect ok");
    for dishonest in ["busy", "fail"] {
        assert_eq!(times(Observable::DishonestOutcome, &outcome(dishonest)), [[20, 30]]);
    }
    assert_good(Observable::DishonestOutcome, &outcome("unknown"));
    assert_good(Observable::DishonestOutcome, &outcome("ok"));
    // Another attempt of the same actor may be what the store shows.
    assert_good(Observable::DishonestOutcome, &(outcome("busy") + "\n25 a acquire invoke hold=2"));
    let released = "20 a acquire ok hold=1\n 30 a release invoke hold=1\n 40 a release ok hold=1\n 50 a inspect ok";
    assert_eq!(times(Observable::DishonestOutcome, released), [[40, 50]]);
}

#[test]
fn the_recorder_writes_what_the_checks_read() {
    let history = History::new();
    let (a, b) = (history.actor("a"), history.actor("b"));
    let deadline = Moment::now().saturating_add(Duration::from_secs(60));

    let hold = a.acquiring_for("k", "owner").granted(Some(FencingToken::new(5)), deadline);
    b.acquiring("k").busy();
    b.acquiring("k").failed(Effect::Unknown);
    hold.renewed(deadline);
    hold.releasing();
    hold.release_failed(Effect::Unknown);
    hold.released(Release::Released);
    let second = b.acquiring("k").granted(Some(FencingToken::new(6)), deadline);
    second.renewal_lost();
    second.stopped();
    b.wrote_fenced("r", FencingToken::new(6), true);
    a.wrote_fenced("r", FencingToken::new(5), true);
    history.actor("prober").probing("k", Duration::from_secs(60)).succeeded();
    history.actor("prober").probing("k", Duration::from_secs(60)).gave_up();
    drop(a.acquiring("k"));
    history.ended("a");
    history.found_held_by("k", "b");

    let events = history.events();
    assert!(events.is_sorted_by_key(|event| event.t_ns));
    assert_eq!((events[1].op, events[1].phase, events[1].token), (Op::Acquire, Phase::Ok, Some(5)));
    assert_eq!(events[1].hold, events[0].hold);
    assert_eq!(events[1].owner.as_deref(), Some("owner"));
    let found: Vec<_> = Observable::ALL.into_iter().filter(|one| !one.find(&events).is_empty()).collect();
    assert_eq!(found, [Observable::StaleWriteAccepted, Observable::Stuck, Observable::Stolen]);
    let stale = &Observable::StaleWriteAccepted.find(&events)[0];
    assert!(stale.to_string().contains("a: Write `r` Ok, token 5]"), "{stale}");

    let mut jsonl = Vec::new();
    write_jsonl(&events, &mut jsonl).unwrap();
    assert_eq!(read_jsonl(jsonl.as_slice()).unwrap(), events);
    let first = String::from_utf8(jsonl).unwrap();
    assert!(first.lines().next().unwrap().ends_with(r#""owner":"owner"}"#), "{first}");
}

#[test]
fn a_deadline_is_on_the_clock_of_the_events() {
    let history = History::new();
    let deadline = Moment::now().saturating_add(Duration::from_secs(30));
    drop(history.actor("a").acquiring("k").granted(None, deadline));
    let events = history.events();
    let remaining = Duration::from_nanos(events[1].deadline_ns.unwrap() - events[1].t_ns);
    assert!(remaining > Duration::from_secs(20) && remaining <= Duration::from_secs(30), "{remaining:?}");
}

#[test]
fn the_clocks_of_two_histories_agree() {
    let (first, second) = (History::new(), History::new());
    for _ in 0..3 {
        first.ended("a");
        second.ended("b");
    }
    let merged: Vec<_> = first.events().into_iter().zip(second.events()).collect();
    for (a, b) in merged {
        assert!(a.t_ns.abs_diff(b.t_ns) < Duration::from_secs(5).as_nanos().try_into().unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn virtual_time_moves_the_events() {
    let history = History::new();
    history.ended("a");
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    history.ended("a");
    let times: Vec<_> = history.events().iter().map(|event| event.t_ns).collect();
    assert_eq!(times[1] - times[0], 3_600_000_000_000);
}

#[test]
fn a_line_that_is_no_event_is_named() {
    let error = read_jsonl(&b"{\"t_ns\":1,\"actor\":\"a\",\"key\":\"k\",\"op\":\"stop\",\"phase\":\"ok\"}\nnone\n"[..]);
    assert!(error.unwrap_err().to_string().starts_with("line 2 is no event"));
}

#[tokio::test]
async fn a_counter_loses_updates_without_a_lock_and_none_with_one() {
    for guarded in [false, true] {
        let history = History::new();
        let counter = GuardedCounter::new("counter");
        let lock = tokio::sync::Mutex::new(());
        let add = async |name: &'static str| {
            let actor = history.actor(name);
            for _ in 0..100 {
                let _held = if guarded { Some(lock.lock().await) } else { None };
                counter.increment_as(&actor).await;
            }
        };
        tokio::join!(add("a"), add("b"), add("c"));
        assert_eq!(counter.increments(), 300);
        assert_eq!(counter.lost_updates() == 0, guarded);
        assert_eq!(Observable::LostUpdate.find(&history.events()).is_empty(), guarded);
    }
}

/// A sound lock, recorded by many threads at once, gives no violation of any kind.
#[test]
fn a_sound_lock_has_a_clean_history() {
    let history = History::new();
    let (lock, token) = (std::sync::Mutex::new(0), std::sync::atomic::AtomicU64::new(0));
    std::thread::scope(|scope| {
        for n in 0..4 {
            let actor = history.actor(format!("thread {n}"));
            let (lock, token) = (&lock, &token);
            scope.spawn(move || {
                for _ in 0..500 {
                    let attempt = actor.acquiring("k");
                    let mut value = lock.lock().unwrap();
                    let token = FencingToken::new(token.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
                    let hold = attempt.granted(Some(token), Moment::now().saturating_add(Duration::from_secs(60)));
                    actor.read("r", *value);
                    *value += 1;
                    actor.wrote("r", *value);
                    hold.releasing();
                    drop(value);
                    hold.released(Release::Released);
                }
            });
        }
    });
    let events = history.events();
    assert_eq!(events.len(), 4 * 500 * 6);
    for observable in Observable::ALL {
        assert_eq!(observable.find(&events), []);
    }
}
