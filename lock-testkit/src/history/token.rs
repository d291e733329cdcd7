use std::collections::HashMap;

use super::event::Event;
use super::holds::{Hold, by_key, holds};
use super::observable::ShownBy;

/// Grants whose token is not greater than that of a grant which had been answered before they were asked for, or the same
/// as that of another owner's.
///
/// Grants that were under way at the same time may be answered in either order, so of those only equal tokens are wrong.
/// On re-entry a token stays the same.
pub(super) fn regressions<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    let holds = holds(events);
    let mut found = Vec::new();
    for key in by_key(&holds) {
        let answered: Vec<&Hold<'a>> =
            key.into_iter().map(|at| &holds[at]).filter(|hold| hold.granted.token.is_some()).collect();
        let mut asked = answered.clone();
        asked.sort_by_key(|hold| hold.invoked.unwrap_or(hold.granted).t_ns);

        let mut earlier = answered.iter().peekable();
        let mut greatest: Option<&Hold<'a>> = None;
        let mut first_with = HashMap::new();
        for hold in asked {
            let asked_at = hold.invoked.unwrap_or(hold.granted).t_ns;
            while let Some(before) = earlier.next_if(|before| before.granted.t_ns < asked_at) {
                if greatest.is_none_or(|greatest| greatest.granted.token < before.granted.token) {
                    greatest = Some(before);
                }
            }
            let same = *first_with.entry(hold.granted.token).or_insert(hold);
            let is_regression = |before: &Hold<'a>| {
                before.granted.token > hold.granted.token
                    || before.granted.token == hold.granted.token && !before.is_of_same_owner_as(hold)
            };
            let before = greatest
                .filter(|before| is_regression(before))
                .or_else(|| (same.granted.hold != hold.granted.hold && is_regression(same)).then_some(same));
            if let Some(before) = before {
                let mut shown_by = vec![before.granted, hold.granted];
                shown_by.extend(hold.invoked);
                shown_by.sort_by_key(|event| event.t_ns);
                found.push(shown_by);
            }
        }
    }
    found
}
