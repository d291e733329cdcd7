use std::collections::{HashMap, HashSet};

use super::event::{Event, Op, Phase};
use super::holds::{Hold, by_key, holds};
use super::observable::ShownBy;

/// Probes that did not succeed by their deadline.
pub(super) fn stuck<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    let mut found = Vec::new();
    let mut open: HashMap<(&str, &str), &'a Event> = HashMap::new();
    for &event in events.iter().filter(|event| event.op == Op::Probe) {
        let probe = (&*event.key, &*event.actor);
        if event.phase == Phase::Invoke {
            open.insert(probe, event);
        } else if let Some(invoked) = open.remove(&probe) {
            let in_time = invoked.deadline_ns.is_none_or(|deadline| event.t_ns <= deadline);
            if event.phase != Phase::Ok || !in_time {
                found.push(vec![invoked, event]);
            }
        }
    }
    found.extend(open.into_values().map(|invoked| vec![invoked]));
    found.sort_by_key(|shown_by| shown_by[0].t_ns);
    found
}

/// Holds that were answered "not held" before their deadline.
pub(super) fn stolen<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    let mut found = Vec::new();
    for hold in holds(events) {
        // A renewal that was under way with the holder's own release may well find nothing.
        let renewal = hold.renewals.iter().find(|renewal| renewal.phase == Phase::NotHeld);
        let renewal = renewal.filter(|renewal| renewal.t_ns < hold.ceased_ns());
        // A release whose first reply was lost may find its own work.
        let release = hold.answers.first().filter(|answer| answer.phase == Phase::NotHeld);
        if let Some(&answer) = renewal.or(release)
            && answer.t_ns < hold.deadline_at(answer.t_ns)
        {
            found.push(vec![hold.granted, answer]);
        }
    }
    found
}

/// Releases and acquires that said what was not so.
pub(super) fn dishonest<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    let holds = holds(events);
    let mut found = Vec::new();
    for key in by_key(&holds) {
        let key: Vec<&Hold<'a>> = key.into_iter().map(|at| &holds[at]).collect();
        found.extend(released_again(&key));
        found.extend(released_what_was_anothers(&key));
    }
    found.extend(held_what_was_refused_or_released(events));
    found.sort_by_key(|shown_by| shown_by.last().map(|event| event.t_ns));
    found
}

/// "Released" after the holder had been told that the lock was not his any more: by a renewal, or by a release.
fn released_again<'a>(key: &[&Hold<'a>]) -> Vec<ShownBy<'a>> {
    let mut found = Vec::new();
    for hold in key {
        let lost = hold.renewals.iter().find(|renewal| renewal.phase == Phase::NotHeld);
        // The answer of a renewal that was sent before the release may come after it.
        let lost = lost.filter(|renewal| renewal.t_ns < hold.ceased_ns());
        let mut gone = lost.copied();
        for answer in &hold.answers {
            match (gone, answer.phase) {
                (Some(before), Phase::Ok) => found.push(vec![hold.granted, before, answer]),
                (None, Phase::Ok | Phase::NotHeld) => gone = Some(answer),
                _ => {}
            }
        }
    }
    found
}

/// "Released" by a holder past his deadline, while another held the lock from before the release until after it.
fn released_what_was_anothers<'a>(key: &[&Hold<'a>]) -> Vec<ShownBy<'a>> {
    let end_of = |hold: &Hold<'_>| hold.ceased_ns().min(hold.deadline_at(hold.ceased_ns()));
    // Of the first n holds, the one that ends last.
    let mut last: Vec<&Hold<'a>> = Vec::with_capacity(key.len());
    for hold in key {
        let before = last.last().copied().filter(|before| end_of(before) >= end_of(hold));
        last.push(before.unwrap_or(hold));
    }
    let mut found = Vec::new();
    for hold in key {
        let Some(released) = hold.answers.iter().find(|answer| answer.phase == Phase::Ok) else { continue };
        let asked_at = hold.ceased_ns();
        let granted_before = key.partition_point(|other| other.granted.t_ns < asked_at);
        let Some(other) = granted_before.checked_sub(1).map(|at| last[at]) else { continue };
        let expired = hold.deadline_at(asked_at) < asked_at;
        if expired && end_of(other) > released.t_ns && !other.is_of_same_owner_as(hold) {
            let mut shown_by = vec![hold.granted, other.granted, *released];
            shown_by.sort_by_key(|event| event.t_ns);
            found.push(shown_by);
        }
    }
    found
}

/// Locks that the store names as held by an actor who was told of nothing but refusals and releases.
fn held_what_was_refused_or_released<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    #[derive(Default)]
    struct Told<'a> {
        /// Acquisitions that may be in the store, as far as the actor has been told.
        maybe: HashSet<u64>,
        /// The last answer that one is not.
        not: Option<&'a Event>,
    }
    let mut found = Vec::new();
    let mut told: HashMap<(&str, &str), Told<'a>> = HashMap::new();
    for &event in events {
        let told = told.entry((&event.key, &event.actor)).or_default();
        match (event.op, event.phase, event.hold) {
            (Op::Acquire, Phase::Invoke | Phase::Ok, Some(hold)) => {
                told.maybe.insert(hold);
            }
            (Op::Acquire, Phase::Busy | Phase::Fail, Some(hold))
            | (Op::Release, Phase::Ok | Phase::NotHeld, Some(hold)) => {
                told.maybe.remove(&hold);
                told.not = Some(event);
            }
            (Op::Inspect, Phase::Ok, _) if told.maybe.is_empty() => {
                found.extend(told.not.map(|not| vec![not, event]));
            }
            _ => {}
        }
    }
    found
}
