use super::claims::{Hold, by_key, holds};
use super::event::Event;
use super::furthest::Furthest;
use super::observable::ShownBy;

/// Holds that overlap from the grant until their holders ceased.
pub(super) fn raw<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    overlaps(&holds(events), |hold| hold.claim.ceased_ns())
}

/// Holds that overlap from the grant until their holders ceased, or had to as far as they believed.
pub(super) fn in_lease<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    overlaps(&holds(events), |hold| {
        let ceased = hold.claim.ceased_ns();
        ceased.min(hold.believed_at(ceased))
    })
}

/// Sweeps over each key's holds in the order of their grants. Of those before, only the one of another owner that ends last
/// matters.
fn overlaps<'a>(holds: &[Hold<'a>], end_of: impl Fn(&Hold<'a>) -> u64) -> Vec<ShownBy<'a>> {
    let mut found = Vec::new();
    for key in by_key(holds, |hold| &hold.granted.key) {
        let mut before = Furthest::new();
        for hold in key {
            let (start, end, owner) = (hold.granted.t_ns, end_of(hold), hold.claim.owner());
            if end > start
                && let Some((other_end, other)) = before.besides(owner)
                && other_end > start
            {
                let other: &Hold<'a> = other;
                let mut shown_by = vec![other.granted, hold.granted];
                shown_by.extend(other.claim.ceased);
                shown_by.extend(hold.claim.ceased);
                shown_by.sort_by_key(|event| event.t_ns);
                found.push(shown_by);
            }
            before.put(end, owner, hold);
        }
    }
    found
}
