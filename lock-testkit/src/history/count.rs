use std::collections::HashMap;

use super::claims::{Claim, claims, holds};
use super::event::{Event, Op};
use super::observable::ShownBy;

/// Of one owner and key, when each hold began and ended to be in the store.
#[derive(Default)]
struct Bounds {
    certain: (Vec<u64>, Vec<u64>),
    possible: (Vec<u64>, Vec<u64>),
}

/// Counts in the store that are less than the holds that must be there, or more than those that can be.
///
/// A hold must be there from its grant until its holder ceases or its deadline has passed. It can be there from the beginning
/// of its acquisition until somebody was told that it is gone.
pub(super) fn corruptions<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    let counted = || events.iter().copied().filter(|event| event.op == Op::Count);
    let name = |event: &'a Event| (&*event.key, &**event.owner.as_ref().unwrap_or(&event.actor));
    let name_of = |claim: &Claim<'a>| (&*claim.first.key, claim.owner().unwrap_or(&claim.first.actor));
    let mut bounds: HashMap<(&str, &str), Bounds> = counted().map(|event| (name(event), Bounds::default())).collect();
    if bounds.is_empty() {
        return Vec::new();
    }
    for claim in claims(events) {
        if let Some(Bounds { possible: (begins, ends), .. }) = bounds.get_mut(&name_of(&claim)) {
            begins.push(claim.first.t_ns);
            ends.push(claim.may_last_until());
        }
    }
    for hold in holds(events) {
        if let Some(Bounds { certain: (begins, ends), .. }) = bounds.get_mut(&name_of(&hold.claim)) {
            let ceased = hold.claim.ceased_ns();
            begins.push(hold.granted.t_ns);
            ends.push(ceased.min(hold.deadline_at(ceased)).max(hold.granted.t_ns));
        }
    }
    for Bounds { certain, possible } in bounds.values_mut() {
        for times in [&mut certain.0, &mut certain.1, &mut possible.0, &mut possible.1] {
            times.sort_unstable();
        }
    }
    let is_corrupt = |event: &&'a Event| {
        let Bounds { certain, possible } = &bounds[&name(event)];
        let now = event.t_ns;
        let at_least = certain.0.partition_point(|begin| *begin < now) - certain.1.partition_point(|end| *end <= now);
        let at_most = possible.0.partition_point(|begin| *begin <= now) - possible.1.partition_point(|end| *end < now);
        let count = event.value.unwrap_or(0);
        count < at_least as u64 || count > at_most as u64
    };
    counted().filter(is_corrupt).map(|event| vec![event]).collect()
}
