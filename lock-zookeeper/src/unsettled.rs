use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{ClaimId, Moment};

/// How long a claim is remembered whose session is over. The driver has given it up long before.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);

/// The claims whose node may have been made without our knowing, and the session in which it was asked for.
///
/// A session's requests are served in their order, and those of a connection that it has left are refused. So a list that
/// was answered in the same session shows every node that the claim can ever have.
#[derive(Debug, Default)]
pub(crate) struct Unsettled(Mutex<HashMap<ClaimId, Asked>>);

#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Moment,
    /// None if it was asked for in several.
    session: Option<i64>,
}

impl Unsettled {
    /// Notes that a node is about to be asked for.
    pub(crate) fn ask(&self, claim: ClaimId, session: i64) {
        let at = Moment::now();
        let mut asked = self.asked();
        asked.retain(|_, one| one.session == Some(session) || at.saturating_duration_since(one.at) < REMEMBERED);
        match asked.entry(claim) {
            Entry::Vacant(entry) => {
                entry.insert(Asked { at, session: Some(session) });
            }
            Entry::Occupied(mut entry) => {
                let session = entry.get().session.filter(|before| *before == session);
                entry.insert(Asked { at, session });
            }
        }
    }

    /// Whether a node was asked for, and it is not known what became of that.
    pub(crate) fn is_asked(&self, claim: ClaimId) -> bool {
        self.asked().contains_key(&claim)
    }

    /// Forgets a claim: it is known what became of its requests.
    pub(crate) fn settle(&self, claim: ClaimId) {
        self.asked().remove(&claim);
    }

    /// Whether the claim's nodes were asked for in this session and in no other.
    pub(crate) fn is_of(&self, claim: ClaimId, session: i64) -> bool {
        self.asked().get(&claim).is_some_and(|asked| asked.session == Some(session))
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<ClaimId, Asked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_settled_only_in_the_one_session_that_asked_for_it() {
        let unsettled = Unsettled::default();
        let claim = ClaimId::random();
        assert!(!unsettled.is_asked(claim) && !unsettled.is_of(claim, 1));
        unsettled.ask(claim, 1);
        assert!(unsettled.is_asked(claim) && unsettled.is_of(claim, 1) && !unsettled.is_of(claim, 2));
        unsettled.ask(claim, 1);
        assert!(unsettled.is_of(claim, 1));
        unsettled.ask(claim, 2);
        assert!(!unsettled.is_of(claim, 1) && !unsettled.is_of(claim, 2));
        unsettled.settle(claim);
        assert!(!unsettled.is_asked(claim));
        unsettled.ask(claim, 2);
        assert!(unsettled.is_of(claim, 2));
    }
}
