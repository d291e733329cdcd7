use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{Effect, FencingToken, Moment, Release};
use lock_testkit::history::{GuardedCounter, History, Observable, Op, Phase, read_jsonl, write_jsonl};

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
    let (lock, token) = (Mutex::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for n in 0..4 {
            let actor = history.actor(format!("thread {n}"));
            let (lock, token) = (&lock, &token);
            scope.spawn(move || {
                for _ in 0..500 {
                    let attempt = actor.acquiring("k");
                    let mut value = lock.lock().unwrap();
                    let token = FencingToken::new(token.fetch_add(1, Ordering::Relaxed));
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

/// A contender is killed, and its parent knows what it did until then; the clock is the lab's, not that of the deadlines.
#[test]
fn what_one_history_tells_another_absorbs() {
    let clock = Arc::new(AtomicU64::new(1_000));
    let on = || {
        let clock = Arc::clone(&clock);
        History::on(move || clock.load(Ordering::Relaxed))
    };
    let (child, parent, told) = (on(), on(), Arc::new(Mutex::new(Vec::new())));
    let lines = Arc::clone(&told);
    child.listen(move |event| write_jsonl([event], &mut *lines.lock().unwrap()).unwrap());

    let in_a_minute = Moment::now().saturating_add(Duration::from_secs(60));
    let hold = child.actor("a").acquiring("k").granted(Some(FencingToken::new(1)), in_a_minute);
    clock.store(2_000, Ordering::Relaxed);
    let theirs = parent.actor("b").acquiring("k").granted(Some(FencingToken::new(2)), in_a_minute);
    // The time of the lab has moved on, that of the child has not.
    clock.store(70_000_000_000, Ordering::Relaxed);
    hold.affirmed(in_a_minute);
    hold.wrote("plain", true);
    theirs.wrote_as("plain", 1);
    clock.store(70_000_000_001, Ordering::Relaxed);
    parent.ended("a");
    for event in read_jsonl(told.lock().unwrap().as_slice()).unwrap() {
        parent.absorb(event);
    }

    let events = parent.events();
    assert!(events.is_sorted_by_key(|event| event.t_ns));
    assert_eq!(events.len(), 8);
    assert_eq!(events.iter().filter(|event| event.hold == events[0].hold).count(), 4);
    let affirmed = events.iter().find(|event| event.op == Op::Affirm).unwrap();
    let believed = affirmed.deadline_ns.unwrap();
    assert!((90_000_000_000..=130_000_000_000).contains(&believed), "{believed}");
    let found: Vec<_> = Observable::ALL.into_iter().filter(|one| !one.find(&events).is_empty()).collect();
    assert_eq!(found, [Observable::RawOverlap, Observable::InLeaseOverlap, Observable::StaleWriteAccepted]);
}

#[test]
fn a_listener_hears_each_event_once_and_what_is_absorbed_too() {
    let (history, heard) = (History::new(), Arc::new(Mutex::new(Vec::new())));
    history.actor("a").read("before", 1);
    let sink = Arc::clone(&heard);
    history.listen(move |event| sink.lock().unwrap().push(event.clone()));
    let before = history.events();
    history.found_count("k", "o", 2);
    history.found_free("k");
    history.found_free_for("k", "b", Duration::from_secs(1));
    history.absorb(before[0].clone());
    let heard = heard.lock().unwrap();
    assert_eq!(heard.iter().map(|event| event.op).collect::<Vec<_>>(), [Op::Count, Op::Free, Op::Free, Op::Read]);
    assert_eq!((heard[0].owner.as_deref(), heard[0].value), (Some("o"), Some(2)));
    assert_eq!(heard[1].deadline_ns, None);
    assert_eq!((&*heard[2].actor, heard[2].deadline_ns), ("b", Some(heard[2].t_ns + 1_000_000_000)));
    assert_eq!(history.events()[..2], [before[0].clone(), before[0].clone()]);
}

#[test]
fn a_deadline_that_has_passed_is_now_on_the_clock_of_the_events() {
    let history = History::on(|| 7);
    let past = Moment::now();
    std::thread::sleep(Duration::from_millis(1));
    let hold = history.actor("a").acquiring("k").granted(None, past);
    hold.affirmed(past);
    hold.renewal_failed(Effect::Unknown);
    let events = history.events();
    assert_eq!(events.iter().map(|event| event.deadline_ns).collect::<Vec<_>>(), [None, Some(7), Some(7), None]);
    assert_eq!((events[3].op, events[3].phase), (Op::Renew, Phase::Unknown));
}

#[test]
fn the_holds_of_two_histories_do_not_meet() {
    let numbers: std::collections::HashSet<_> = (0..100)
        .map(|_| {
            let history = History::new();
            drop(history.actor("a").acquiring("k"));
            history.events()[0].hold.unwrap()
        })
        .collect();
    assert_eq!(numbers.len(), 100);
}
