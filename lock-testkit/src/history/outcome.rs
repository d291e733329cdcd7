use std::collections::{HashMap, HashSet};

use super::claims::{Hold, by_key, holds};
use super::event::{Event, Op, Phase};
use super::furthest::Furthest;
use super::observable::ShownBy;

/// Probes that did not succeed by their deadline.
pub(super) fn stuck<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    let mut found = Vec::new();
    let mut open: HashMap<(&str, &str), &'a Event> = HashMap::new();
    for &event in events.iter().filter(|event| event.op == Op::Probe) {
        let probe = (&*event.key, &*event.actor);
        if event.phase == Phase::Invoke {
            // Of one client that probes twice at once, each probe counts.
            found.extend(open.insert(probe, event).map(|unanswered| vec![unanswered]));
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
        // A release whose first reply was lost may find its own work.
        let release = hold.claim.releases.iter().copied().find(|answer| answer.phase != Phase::Fail);
        let release = release.filter(|answer| answer.phase == Phase::NotHeld);
        if let Some(answer) = hold.claim.loss().or(release)
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
    for key in by_key(&holds, |hold| &hold.granted.key) {
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
        let mut gone = hold.claim.loss();
        for answer in &hold.claim.releases {
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
    let released = |hold: &&'_ Hold<'a>| hold.claim.releases.iter().copied().find(|answer| answer.phase == Phase::Ok);
    let mut releases: Vec<_> = key.iter().filter_map(|hold| Some((hold, released(hold)?))).collect();
    releases.sort_by_key(|(hold, _)| hold.claim.ceased_ns());

    let mut found = Vec::new();
    let mut before = Furthest::new();
    let mut holds = key.iter().peekable();
    for (hold, released) in releases {
        let asked_at = hold.claim.ceased_ns();
        while let Some(other) = holds.next_if(|other| other.granted.t_ns < asked_at) {
            let ceased = other.claim.ceased_ns();
            before.put(ceased.min(other.deadline_at(ceased)), other.claim.owner(), other);
        }
        if hold.deadline_at(asked_at) < asked_at
            && let Some((other_end, other)) = before.besides(hold.claim.owner())
            && other_end > released.t_ns
        {
            let mut shown_by = vec![hold.granted, other.granted, released];
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
    let is_inspected = |event: &&&'a Event| event.op == Op::Inspect;
    let mut told: HashMap<(&str, &str), Told<'a>> =
        events.iter().filter(is_inspected).map(|event| ((&*event.key, &*event.actor), Told::default())).collect();
    if told.is_empty() {
        return found;
    }
    for &event in events {
        let Some(told) = told.get_mut(&(&*event.key, &*event.actor)) else { continue };
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
