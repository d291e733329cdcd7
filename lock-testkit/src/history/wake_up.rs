use std::collections::HashMap;

use super::claims::{Claim, claims};
use super::event::{Event, Op, Phase};
use super::observable::ShownBy;

/// Only waiters of a lock found free, who still waited when their bound had passed.
///
/// If anybody was granted the lock within the bound, it was not free, or the waiter has it. A waiter who gave up before is not
/// a waiter. One who has no answer waits until the actor or the history ends.
pub(super) fn lost<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    let bounded = |event: &&'a Event| Some((event.deadline_ns.filter(|_| event.op == Op::Free)?, *event));
    let mut frees: Vec<(u64, &Event)> = events.iter().filter_map(bounded).collect();
    if frees.is_empty() {
        return Vec::new();
    }
    frees.sort_by_key(|(deadline, _)| *deadline);
    let mut grants: HashMap<&str, Vec<u64>> = HashMap::new();
    for event in events.iter().filter(|event| (event.op, event.phase) == (Op::Acquire, Phase::Ok)) {
        grants.entry(&event.key).or_default().push(event.t_ns);
    }
    let history_end = events.last().map_or(0, |event| event.t_ns);
    let waits_until = |claim: &Claim<'_>| claim.answer.or(claim.ceased).map_or(history_end, |event| event.t_ns);

    let claims = claims(events);
    let mut begun = claims.iter().peekable();
    // Of each actor and key, the claim that waits longest.
    let mut waiting: HashMap<(&str, &str), &Claim<'a>> = HashMap::new();
    let mut found = Vec::new();
    for (deadline, free) in frees {
        while let Some(claim) = begun.next_if(|claim| claim.first.t_ns <= deadline) {
            let longest = waiting.entry((&claim.first.key, &claim.first.actor)).or_insert(claim);
            if waits_until(longest) < waits_until(claim) {
                *longest = claim;
            }
        }
        let grants = grants.get(&*free.key).map_or(&[][..], Vec::as_slice);
        let granted = grants.get(grants.partition_point(|grant| *grant < free.t_ns));
        let waiter = waiting.get(&(&*free.key, &*free.actor)).filter(|claim| waits_until(claim) > deadline);
        if granted.is_none_or(|granted| *granted > deadline)
            && let Some(waiter) = waiter
        {
            let mut shown_by = vec![waiter.first, free];
            shown_by.extend(waiter.answer);
            shown_by.sort_by_key(|event| event.t_ns);
            found.push(shown_by);
        }
    }
    found
}
