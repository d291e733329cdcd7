use std::collections::HashMap;

use super::claims::{Hold, by_key, holds};
use super::event::{Event, Phase};
use super::observable::ShownBy;

/// Grants whose token is not greater than that of a grant which had been answered before they were asked for, or the same
/// as that of another grant.
///
/// Grants that were under way at the same time may be answered in either order, so of those only equal tokens are wrong. On
/// re-entry a token stays the same: when its owner asks while it may still hold the lock by it.
pub(super) fn regressions<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    let holds = holds(events);
    let mut found = Vec::new();
    for answered in by_key(&holds, |hold| &hold.granted.key) {
        let answered: Vec<_> = answered.into_iter().filter(|hold| hold.granted.token.is_some()).collect();
        let mut asked = answered.clone();
        asked.sort_by_key(|hold| hold.claim.first.t_ns);

        let mut earlier = answered.iter().peekable();
        let mut greatest: Option<&Hold<'a>> = None;
        // The first grant with each token, and how long its owner may have held the lock by it.
        let mut first_with: HashMap<Option<u64>, (&Hold<'a>, u64)> = HashMap::new();
        for hold in asked {
            let asked_at = hold.claim.first.t_ns;
            while let Some(before) = earlier.next_if(|before| before.granted.t_ns < asked_at) {
                if greatest.is_none_or(|greatest| greatest.granted.token < before.granted.token) {
                    greatest = Some(before);
                }
            }
            let greater = greatest.filter(|before| before.granted.token > hold.granted.token);
            let until = hold.claim.may_last_until();
            let same = match first_with.get_mut(&hold.granted.token) {
                None => {
                    first_with.insert(hold.granted.token, (hold, until));
                    None
                }
                Some((first, last)) if first.claim.is_of_same_owner_as(&hold.claim) && *last >= asked_at => {
                    *last = until.max(*last);
                    None
                }
                Some((first, _)) => Some(*first),
            };
            if let Some(before) = greater.or(same) {
                let mut shown_by = vec![before.granted, hold.granted];
                shown_by.extend(Some(hold.claim.first).filter(|first| first.phase == Phase::Invoke));
                shown_by.sort_by_key(|event| event.t_ns);
                found.push(shown_by);
            }
        }
    }
    found
}
