use std::collections::HashMap;

use super::claims::{by_key, holds};
use super::event::{Event, Op, Phase};
use super::furthest::Furthest;
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

/// Writes that a resource accepted after one with a newer token; or, where not all writes bear a token, after one by a later
/// holder.
///
/// The order of the writes is the resource's own where all bear it, else that of their events.
pub(super) fn stale_writes<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    let is_judged = |event: &&'a Event| {
        (event.op, event.phase) == (Op::Write, Phase::Ok) && (event.token.is_some() || event.hold.is_some())
    };
    let writes: Vec<&Event> = events.iter().copied().filter(is_judged).collect();
    let mut grants: HashMap<u64, &Event> = HashMap::new();
    if writes.iter().any(|write| write.token.is_none()) {
        grants = holds(events).into_iter().filter_map(|hold| Some((hold.granted.hold?, hold.granted))).collect();
    }
    let mut found = Vec::new();
    for mut writes in by_key(&writes, |write| &write.key) {
        if writes.iter().all(|write| write.position.is_some()) {
            writes.sort_by_key(|write| write.position);
        }
        let has_tokens = writes.iter().all(|write| write.token.is_some());
        let mut newest = Furthest::new();
        for &write in writes {
            let grant = write.hold.and_then(|hold| grants.get(&hold));
            let (age, owner) = if has_tokens {
                (write.token, None)
            } else {
                (grant.map(|grant| grant.t_ns), grant.and_then(|grant| grant.owner.as_deref()))
            };
            let Some(age) = age else { continue };
            if let Some((newer_age, newer)) = newest.besides(owner)
                && newer_age > age
            {
                found.push(vec![newer, write]);
            }
            newest.put(age, owner, write);
        }
    }
    found
}
