use super::event::Event;
use super::holds::{Hold, by_key, holds};
use super::observable::ShownBy;

/// Holds that overlap from the grant until their holders ceased.
pub(super) fn raw<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    overlaps(&holds(events), Hold::ceased_ns)
}

/// Holds that overlap from the grant until their holders ceased or had to.
pub(super) fn in_lease<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    overlaps(&holds(events), |hold| {
        let ceased = hold.ceased_ns();
        ceased.min(hold.deadline_at(ceased))
    })
}

/// Sweeps over each key's holds in the order of their grants. Of those before, only the one that ends last matters; and,
/// because one owner may hold twice, the one that ends last among those of other owners.
fn overlaps<'a>(holds: &[Hold<'a>], end_of: impl Fn(&Hold<'a>) -> u64) -> Vec<ShownBy<'a>> {
    let mut found = Vec::new();
    for key in by_key(holds) {
        let mut last: Option<(u64, &Hold<'a>)> = None;
        let mut last_of_others: Option<(u64, &Hold<'a>)> = None;
        for hold in key.into_iter().map(|at| &holds[at]) {
            let other = [last, last_of_others]
                .into_iter()
                .flatten()
                .find(|(end, other)| !other.is_of_same_owner_as(hold) && *end > hold.granted.t_ns);
            let end = end_of(hold);
            if let Some((_, other)) = other
                && end > hold.granted.t_ns
            {
                let mut shown_by = vec![other.granted, hold.granted];
                shown_by.extend(other.ceased);
                shown_by.extend(hold.ceased);
                shown_by.sort_by_key(|event| event.t_ns);
                found.push(shown_by);
            }
            match last {
                Some((last_end, before)) if last_end >= end => {
                    let is_news = last_of_others.is_none_or(|(other_end, _)| end > other_end);
                    if is_news && !before.is_of_same_owner_as(hold) {
                        last_of_others = Some((end, hold));
                    }
                }
                before => {
                    if before.is_some_and(|(_, before)| !before.is_of_same_owner_as(hold)) {
                        last_of_others = before;
                    }
                    last = Some((end, hold));
                }
            }
        }
    }
    found
}
