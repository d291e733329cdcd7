//! Each check on histories written by hand, good and bad ones.

#![allow(clippy::unwrap_used, reason = "the functions below are for tests only")]

mod busy;
mod count;
mod outcome;
mod overlap;
mod recorder;
mod scale;
mod token;
mod wake_up;
mod write;

use lock_testkit::history::{Event, Observable, Violation, read_jsonl};
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
