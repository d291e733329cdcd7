//! How a round becomes a grant, or is undone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lock_core::{Backend, Claim, Effect, Error, ErrorKind, FencingToken, Grant, Moment, Result};
use lock_redis::Ttl;

use super::Redlock;
use crate::ask::{self, Calls, SharedRound};
use crate::entry::Entry;
use crate::error::explain;
use crate::lease::valid_until;
use crate::mint::{self, Reading};
use crate::round::{Question, Round, Verdict};

/// What a grant keeps of the round that won it.
pub(super) struct Won {
    pub(super) number: u64,
    pub(super) round: SharedRound,
}

impl Won {
    pub(super) fn of(grant: &Grant) -> Option<&Self> {
        grant.state.as_ref()?.downcast_ref()
    }
}

impl Redlock {
    /// One round for the lock.
    pub(super) async fn attempt(&self, claim: &Claim, ttl: &Ttl, entry: &Arc<Entry>) -> Result<Option<Grant>> {
        let number = self.rounds.fetch_add(1, Ordering::Relaxed) + 1;
        let sent_at = Moment::now();
        let (limit, valid_until) = (self.options.node_limit(ttl.given), valid_until(ttl, sent_at));
        let round = Round::new(Question::Acquire, self.nodes.len(), sent_at.saturating_add(limit), Some(valid_until));
        let round = SharedRound::new(round);
        let mut calls = self.calls(|nodes, at| {
            let (entry, ttl) = (Arc::clone(entry), ttl.clone());
            async move { nodes[at].acquire(&entry, number, &ttl).await }
        });
        let tally = ask::ask(&round, &mut calls).await;
        let answer = match tally.verdict {
            Verdict::Won => {
                let won = Won { number, round: round.clone() };
                self.granted(claim, ttl, entry, sent_at, &tally.yes, won).await.map(Some)
            }
            Verdict::Refused => Ok(None),
            Verdict::TooLate => Err(self.too_late("acquire", ttl.given)),
            Verdict::Failed => Err(explain(&tally, self.nodes.len(), limit, self.name(), "acquire")),
        };
        self.settle(round, calls, entry, number);
        answer.map_err(|error| error.with_key(&claim.key))
    }

    /// Makes a grant of a round that was won, with a token where there are any; or revokes it.
    async fn granted(
        &self,
        claim: &Claim,
        ttl: &Ttl,
        entry: &Arc<Entry>,
        sent_at: Moment,
        readings: &[Reading],
        won: Won,
    ) -> Result<Grant> {
        let won = Arc::new(won);
        let grant = Grant::new(claim.clone(), sent_at, ttl.given).with_state(Arc::<Won>::clone(&won));
        if !self.fenced {
            return Ok(grant);
        }
        let token = mint::proposal(readings);
        let calls = self.calls(|nodes, at| {
            let (entry, ttl) = (Arc::clone(entry), ttl.clone());
            async move { nodes[at].mint(&entry, token, &ttl).await }
        });
        let limit = self.options.node_limit(ttl.given);
        let tally = self.ask(limit, Some(valid_until(ttl, sent_at)), calls).await;
        let error = match tally.verdict {
            Verdict::Won => return Ok(grant.with_fencing_token(FencingToken::new(token))),
            Verdict::TooLate => self.too_late("acquire", ttl.given),
            Verdict::Failed => explain(&tally, self.nodes.len(), limit, self.name(), "acquire"),
            Verdict::Refused => {
                let says = "the lock or its fence was taken away while its token was put down; try again";
                Error::new(ErrorKind::Unavailable, Effect::Unknown, self.name(), "acquire", says)
            }
        };
        won.round.lock().revoke();
        Err(error)
    }

    /// Has the calls of a round for the lock run to their end, and undone where they must be.
    fn settle(&self, round: SharedRound, calls: Calls<Option<Reading>>, entry: &Arc<Entry>, number: u64) {
        if calls.is_empty() && !round.lock().has_undo() {
            return;
        }
        let (nodes, entry) = (Arc::clone(&self.nodes), Arc::clone(entry));
        let undo = move |at: usize| -> BoxFuture<'static, ()> {
            let (nodes, entry) = (Arc::clone(&nodes), Arc::clone(&entry));
            Box::pin(async move {
                if let Err(error) = nodes[at].release(&entry, Some(number), "acquire").await {
                    tracing::debug!(%error, "a vote that is not needed stays until its ttl");
                }
            })
        };
        let mut rest = Box::pin(ask::settle(round, calls, undo));
        // What is to be undone now is sent now, before anything that the caller asks these nodes next.
        if (&mut rest).now_or_never().is_none() {
            self.stragglers.spawn(rest);
        }
    }
}
