use super::claims::{Claim, by_key, claims};
use super::event::{Event, Phase};
use super::furthest::Furthest;
use super::observable::ShownBy;

/// Attempts that were answered "busy" although at no instant of them anybody else may have had the lock, or a place in its
/// queue.
pub(super) fn unjustified<'a>(events: &[&'a Event]) -> Vec<ShownBy<'a>> {
    let claims = claims(events);
    let mut found = Vec::new();
    for key in by_key(&claims, |claim| &claim.first.key) {
        let busy = |(at, claim): (usize, &&Claim<'a>)| {
            let answer = claim.answer.filter(|answer| answer.phase == Phase::Busy)?;
            Some((at, claim.first, answer))
        };
        let mut refused: Vec<_> = key.iter().enumerate().filter_map(busy).collect();
        refused.sort_by_key(|(.., answer)| answer.t_ns);

        // Of the claims that had begun by the answer, the last of another number to go must have been there.
        let mut begun = Furthest::new();
        let mut claims = key.iter().enumerate().peekable();
        for (at, first, answer) in refused {
            while let Some((number, claim)) = claims.next_if(|(_, claim)| claim.first.t_ns <= answer.t_ns) {
                begun.put(claim.may_last_until(), Some(number), ());
            }
            if begun.besides(Some(at)).is_none_or(|(until, ())| until < first.t_ns) {
                found.push(vec![first, answer]);
            }
        }
    }
    found
}
