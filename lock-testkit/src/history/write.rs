use std::collections::HashMap;

use super::event::{Event, Op, Phase};
use super::observable::ShownBy;

/// Writes that followed a read by the same actor, with another's write in between: that one is lost.
pub(super) fn lost_updates<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    let mut found = Vec::new();
    let mut reads: HashMap<(&str, &str), (usize, &'a Event)> = HashMap::new();
    let mut last_writes: HashMap<&str, (usize, &'a Event)> = HashMap::new();
    for (at, &event) in events.iter().enumerate() {
        let (resource, actor) = (&*event.key, &*event.actor);
        match (event.op, event.phase) {
            (Op::Read, Phase::Ok) => {
                reads.insert((resource, actor), (at, event));
            }
            (Op::Write, Phase::Ok) => {
                if let Some((read_at, read)) = reads.remove(&(resource, actor))
                    && let Some((write_at, write)) = last_writes.get(resource)
                    && *write_at > read_at
                    && write.actor != event.actor
                {
                    found.push(vec![read, write, event]);
                }
                last_writes.insert(resource, (at, event));
            }
            _ => {}
        }
    }
    found
}

/// Writes that were accepted with an older token than one that had been accepted before.
pub(super) fn stale_writes<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    let mut found = Vec::new();
    let mut newest: HashMap<&str, &'a Event> = HashMap::new();
    for &event in events {
        if (event.op, event.phase) != (Op::Write, Phase::Ok) || event.token.is_none() {
            continue;
        }
        match newest.get(&*event.key) {
            Some(newer) if newer.token > event.token => found.push(vec![*newer, event]),
            _ => {
                newest.insert(&event.key, event);
            }
        }
    }
    found
}
