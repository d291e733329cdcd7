//! What a lock looks like from what several nodes say of it. No I/O.

use std::collections::BTreeMap;

use lock_core::{FencingToken, Inspection};

use crate::entry::parse;
use crate::node::Seen;
use crate::round::majority;

/// Whether a majority of `nodes` holds the lock for the same claim, from what those say that answered; nothing if those that
/// did not could decide it.
pub(crate) fn inspection(seen: &[Option<Seen>], nodes: usize) -> Option<Inspection> {
    let mut holders: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
    for seen in seen.iter().flatten() {
        // Rounds of one claim differ in their values and are one holder.
        let holder = parse(&seen.value).map_or(&*seen.value, |(claim, _)| claim);
        holders.entry(holder).or_default().push(seen);
    }
    let most = holders.into_iter().max_by_key(|(_, votes)| votes.len());
    let votes = most.as_ref().map_or(0, |(_, votes)| votes.len());
    let unknown = nodes - seen.len();
    let Some((holder, mut votes)) = most.filter(|_| votes >= majority(nodes)) else {
        return (votes + unknown < majority(nodes)).then(Inspection::default);
    };
    // Held for as long as a majority keeps it; no end counts as the longest.
    votes.sort_by_key(|vote| std::cmp::Reverse((vote.remaining.is_none(), vote.remaining)));
    let minted = votes.iter().filter_map(|vote| vote.fence.as_ref());
    let mut inspection = Inspection::default();
    inspection.held = true;
    inspection.holder = Some(holder.to_owned());
    inspection.label = parse(&votes[0].value).and_then(|(_, label)| label).map(ToOwned::to_owned);
    inspection.fencing_token =
        minted.filter(|(_, claim)| claim == holder).map(|(token, _)| FencingToken::new(*token)).max();
    inspection.remaining = votes[majority(nodes) - 1].remaining;
    Some(inspection)
}

/// The keys that may be held by a majority of `nodes`: those that did not answer are taken to have them all, so that no held
/// lock is missing.
pub(crate) fn listed(found: &[Vec<String>], nodes: usize) -> Vec<&str> {
    let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
    for key in found.iter().flatten() {
        *votes.entry(key).or_default() += 1;
    }
    let unknown = nodes - found.len();
    votes.into_iter().filter(|(_, votes)| votes + unknown >= majority(nodes)).map(|(key, _)| key).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn vote(claim: &str, round: u64, millis: u64, fence: Option<(u64, &str)>) -> Option<Seen> {
        Some(Seen {
            value: format!("{claim}:{round}:host"),
            remaining: Some(Duration::from_millis(millis)),
            fence: fence.map(|(token, claim)| (token, claim.to_owned())),
        })
    }

    #[test]
    fn a_lock_is_held_by_whom_a_majority_names_and_as_long_as_a_majority_keeps_it() {
        let seen = [vote(A, 1, 90, Some((7, A))), vote(B, 5, 500, Some((9, B))), vote(A, 2, 70, Some((6, B)))];
        let found = inspection(&seen, 3).unwrap();
        assert_eq!((found.holder.as_deref(), found.label.as_deref()), (Some(A), Some("host")));
        assert_eq!(found.remaining, Some(Duration::from_millis(70)));
        assert_eq!(found.fencing_token, Some(FencingToken::new(7)));
    }

    #[test]
    fn without_a_majority_it_is_free_unless_the_silent_could_hold_it() {
        let free = Some(Inspection::default());
        assert_eq!(inspection(&[vote(A, 1, 9, None), vote(B, 1, 9, None), None], 3), free);
        assert_eq!(inspection(&[vote(A, 1, 9, None), vote(A, 1, 9, None), None, None], 4), free);
        assert_eq!(inspection(&[None, None], 3), free);
        assert_eq!(inspection(&[vote(A, 1, 9, None), None], 3), None);
        assert!(inspection(&[vote(A, 1, 9, None), vote(A, 1, 9, None)], 3).unwrap().held);
    }

    #[test]
    fn a_key_is_listed_if_a_majority_may_have_it() {
        let keys = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect::<Vec<_>>();
        let all = [keys(&["a", "b"]), keys(&["a", "c"]), keys(&["a", "b"])];
        assert_eq!(listed(&all, 3), ["a", "b"]);
        assert_eq!(listed(&all[..2], 3), ["a", "b", "c"]);
    }
}
