//! How long each check takes for a million holds: `cargo run --release -p lock-testkit --example history_million`.

use std::sync::Arc;
use std::time::Instant;

use lock_testkit::history::{Event, Observable, Op, Phase};

const HOLDS: u64 = 1_000_000;

fn main() {
    for (title, keys, lasts) in [
        ("one key, one after another", 1, 5),
        ("a thousand keys, one after another", 1_000, 5),
        ("one key, all overlap", 1, HOLDS * 10),
    ] {
        let events = history(keys, lasts);
        println!("{title}: {HOLDS} holds, {} events", events.len());
        for observable in Observable::ALL {
            let start = Instant::now();
            let found = observable.find(&events).len();
            println!("  {:<20} {:>5} ms, {found} found", observable.to_string(), start.elapsed().as_millis());
        }
    }
}

/// A history in which each check has something to look for.
fn history(keys: u64, lasts: u64) -> Vec<Event> {
    let names: Vec<Arc<str>> = (0..keys).map(|key| format!("key {key}").into()).collect();
    let (actor, resource): (Arc<str>, Arc<str>) = ("a".into(), "resource".into());
    let mut events = Vec::new();
    for (t_ns, op) in [(0, Op::Count), (1, Op::Inspect), (2, Op::Free)] {
        events.push(Event::new(t_ns, Arc::clone(&actor), Arc::clone(&names[0]), op, Phase::Ok));
    }
    for hold in 0..HOLDS {
        let start = 3 + hold * 10;
        let key = &names[usize::try_from(hold % keys).expect("it is below a thousand")];
        for (t_ns, key, op, phase) in [
            (start, key, Op::Acquire, Phase::Invoke),
            (start + 1, key, Op::Acquire, Phase::Ok),
            (start + 2, &resource, Op::Write, Phase::Ok),
            (start + lasts, key, Op::Release, Phase::Invoke),
            (start + lasts + 1, key, Op::Release, Phase::Ok),
        ] {
            let mut event = Event::new(t_ns, Arc::clone(&actor), Arc::clone(key), op, phase);
            event.hold = Some(hold);
            event.token = Some(hold);
            event.deadline_ns = Some(u64::MAX);
            events.push(event);
        }
    }
    // As `History::events` gives them.
    events.sort_by_key(|event| event.t_ns);
    events
}
