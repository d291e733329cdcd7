//! How long each check takes for a million holds: `cargo run --release -p lock-testkit --example history_million`.
//!
//! Two histories: one key held by one after another, with tokens and guarded writes; and the worst case, where every hold
//! overlaps all others of its key.

use std::io::{self, Write};
use std::time::Instant;

use lock_testkit::history::{Event, Observable, read_jsonl};

const HOLDS: u64 = 1_000_000;

fn main() -> io::Result<()> {
    for (title, keys, overlapping) in
        [("one key", 1, false), ("a thousand keys", 1_000, false), ("one key, all overlap", 1, true)]
    {
        let events = history(keys, overlapping)?;
        println!("{title}: {HOLDS} holds, {} events", events.len());
        for observable in Observable::ALL {
            let start = Instant::now();
            let found = observable.find(&events).len();
            println!("  {observable:<20} {:>5} ms {found:>9} found", start.elapsed().as_millis());
        }
    }
    Ok(())
}

/// A history in which each check has something to do.
fn history(keys: u64, overlapping: bool) -> io::Result<Vec<Event>> {
    let mut events = Vec::with_capacity(HOLDS as usize * 5);
    let lines = |text: &str| read_jsonl(text.as_bytes());
    // One of each, to be changed: an event cannot be written down in another crate.
    let invoke = &lines(r#"{"t_ns":0,"actor":"a","key":"k","op":"acquire","phase":"invoke"}"#)?[0];
    let others = lines(concat!(
        r#"{"t_ns":0,"actor":"a","key":"k","op":"count","phase":"ok","owner":"nobody","value":0}"#,
        "\n",
        r#"{"t_ns":1,"actor":"a","key":"k 0","op":"inspect","phase":"ok"}"#,
        "\n",
        r#"{"t_ns":2,"actor":"z","key":"k 0","op":"free","phase":"ok","deadline_ns":9}"#,
    ))?;
    let [write, ok, release] = [
        &lines(r#"{"t_ns":0,"actor":"a","key":"resource","op":"write","phase":"ok"}"#)?[0],
        &lines(r#"{"t_ns":0,"actor":"a","key":"k","op":"acquire","phase":"ok"}"#)?[0],
        &lines(r#"{"t_ns":0,"actor":"a","key":"k","op":"release","phase":"invoke"}"#)?[0],
    ];
    let released = &lines(r#"{"t_ns":0,"actor":"a","key":"k","op":"release","phase":"ok"}"#)?[0];
    let names: Vec<std::sync::Arc<str>> = (0..keys).map(|key| format!("k {key}").into()).collect();
    events.extend(others);
    for hold in 0..HOLDS {
        let start = hold * 10;
        let end = if overlapping { HOLDS * 10 + hold * 10 } else { start + 5 };
        for (t_ns, like) in [(start, invoke), (start + 1, ok), (start + 2, write), (end, release), (end + 1, released)]
        {
            let mut event = like.clone();
            event.t_ns = t_ns;
            event.hold = Some(hold);
            event.token = Some(hold);
            event.deadline_ns = Some(u64::MAX);
            if like != write {
                event.key = names[(hold % keys) as usize].clone();
            }
            events.push(event);
        }
    }
    io::stdout().flush()?;
    Ok(events)
}
