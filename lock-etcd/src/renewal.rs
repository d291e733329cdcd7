//! Renewing: one keep-alive per lease, and then a look whether each key is still there.

use std::collections::HashMap;
use std::sync::Arc;

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, PutOptions, Txn, TxnOp};
use futures_util::future::{join, join_all};
use lock_core::{Effect, Error, ErrorKind, LockKey, Moment, Renew, Renewal, Result};

use crate::Etcd;
use crate::error::{Failure, NAME, explain};
use crate::lease::{Hold, Lease};
use crate::leases::{own_id, whole_seconds};
use crate::queue::{got, revision};

/// The server refuses a transaction of more parts (`--max-txn-ops`).
const COMPARES: usize = 128;

/// One renewal: its place in the batch, and what it is about.
struct One<'a> {
    place: usize,
    key: &'a LockKey,
    hold: &'a Hold,
}

type Answer = (usize, Result<Renewal>);

impl Etcd {
    pub(crate) async fn renew_all(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        let mut kept: HashMap<i64, (Arc<Lease>, Vec<One<'_>>)> = HashMap::new();
        let mut moved = Vec::new();
        let mut answers: Vec<Answer> = Vec::with_capacity(batch.len());
        for (place, renew) in batch.iter().enumerate() {
            let key = &renew.grant.claim.key;
            let prepared = whole_seconds(renew.ttl, "renew").and_then(|seconds| Ok((seconds, hold_of(renew)?)));
            let (seconds, hold) = match prepared {
                Ok(prepared) => prepared,
                Err(error) => {
                    answers.push((place, Err(error.with_key(key))));
                    continue;
                }
            };
            let (one, lease) = (One { place, key, hold }, hold.lease());
            if renew.ttl <= lease.granted {
                kept.entry(lease.id).or_insert_with(|| (lease, Vec::new())).1.push(one);
            } else {
                moved.push(self.move_one(one, seconds));
            }
        }
        let kept = join_all(kept.into_values().map(|(lease, ones)| self.keep_all(lease, ones)));
        let (kept, moved) = join(kept, join_all(moved)).await;
        answers.extend(kept.into_iter().flatten().chain(moved));
        answers.sort_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Restarts the ttl of one lease, and then looks whether the keys under it are still there: a keep-alive alone would not
    /// notice that a key was deleted, and some servers answer it for a lease that was revoked (etcd before 3.4.38).
    async fn keep_all(&self, lease: Arc<Lease>, ones: Vec<One<'_>>) -> Vec<Answer> {
        if let Err(failure) = self.leases.keep_alive(&lease).await {
            let gone = matches!(failure, Failure::LeaseGone);
            let error = explain(failure, "renew");
            let answer =
                |one: One<'_>| (one.place, Err(if gone { lost(one.key) } else { error.clone().with_key(one.key) }));
            return ones.into_iter().map(answer).collect();
        }
        let renewal = Renewal::new(lease.alive_at(), lease.granted);
        join_all(ones.chunks(COMPARES).map(|ones| self.verify(ones, renewal))).await.into_iter().flatten().collect()
    }

    async fn verify(&self, ones: &[One<'_>], renewal: Renewal) -> Vec<Answer> {
        let compares: Vec<_> = ones
            .iter()
            .map(|One { hold, .. }| Compare::create_revision(&*hold.key, CompareOp::Equal, hold.revision))
            .collect();
        let options = GetOptions::new().with_keys_only();
        let looks: Vec<_> = ones.iter().map(|One { hold, .. }| TxnOp::get(&*hold.key, Some(options.clone()))).collect();
        match self.endpoints.txn(Txn::new().when(compares).or_else(looks)).await {
            Ok(answer) if answer.succeeded() => ones.iter().map(|one| (one.place, Ok(renewal))).collect(),
            Ok(answer) => {
                let mut looks = answer.op_responses().into_iter().map(got);
                let answer = |one: &One<'_>| {
                    let found =
                        looks.next().flatten().and_then(|look| look.kvs().first().map(KeyValue::create_revision));
                    (one.place, if found == Some(one.hold.revision) { Ok(renewal) } else { Err(lost(one.key)) })
                };
                ones.iter().map(answer).collect()
            }
            Err(failure) => {
                let error = explain(failure, "renew");
                ones.iter().map(|one| (one.place, Err(error.clone().with_key(one.key)))).collect()
            }
        }
    }

    /// A keep-alive cannot change the ttl of a lease, so the key moves to another lease; its create revision stays.
    async fn move_one(&self, one: One<'_>, seconds: i64) -> Answer {
        let answer = match self.move_to(one.hold, seconds).await {
            Ok(Some(renewal)) => Ok(renewal),
            Ok(None) => Err(lost(one.key)),
            Err(failure) => Err(explain(failure, "renew").with_key(one.key)),
        };
        (one.place, answer)
    }

    async fn move_to(&self, hold: &Hold, seconds: i64) -> Result<Option<Renewal>, Failure> {
        let (asked, old) = (Moment::now(), hold.lease());
        let new = if old.is_session {
            self.leases.session(seconds).await?
        } else {
            self.leases.own(own_id(hold.claim, seconds), seconds).await?
        };
        if new.alive_at() < asked {
            self.leases.keep_alive(&new).await?;
        }
        let renewal = Renewal::new(new.alive_at(), new.granted);
        let mut modified = hold.modified();
        // The second time with what the first has found: an earlier move of unknown outcome had been applied.
        for _ in 0..2 {
            // Compared with the last change too, so that a late copy of an older move does nothing.
            let ours = Compare::create_revision(&*hold.key, CompareOp::Equal, hold.revision);
            let unchanged = Compare::mod_revision(&*hold.key, CompareOp::Equal, modified);
            let mut puts =
                vec![TxnOp::put(&*hold.key, "", Some(PutOptions::new().with_lease(new.id).with_ignore_value()))];
            let marks = !new.is_marked();
            if marks {
                puts.push(TxnOp::put(self.leases.marker(&new), "", Some(PutOptions::new().with_lease(new.id))));
            }
            let look = TxnOp::get(&*hold.key, Some(GetOptions::new().with_keys_only()));
            let answer = self.endpoints.txn(Txn::new().when([ours, unchanged]).and_then(puts).or_else([look])).await?;
            if answer.succeeded() {
                if marks {
                    new.set_marked();
                }
                hold.moved(new, revision(&answer)?);
                self.leases.end_own(&old).await;
                return Ok(Some(renewal));
            }
            let found = answer.op_responses().into_iter().find_map(got);
            let found = found.as_ref().and_then(|look| look.kvs().first());
            match found.filter(|kv| kv.create_revision() == hold.revision) {
                Some(kv) => modified = kv.mod_revision(),
                None => return Ok(None),
            }
        }
        Err(Failure::Answer("a key that somebody else writes"))
    }
}

fn hold_of<'a>(renew: &Renew<'a>) -> Result<&'a Hold> {
    hold(renew.grant, "renew")
}

/// What a grant of ours carries.
pub(crate) fn hold<'a>(grant: &'a lock_core::Grant, operation: &'static str) -> Result<&'a Hold> {
    grant.state.as_deref().and_then(|state| state.downcast_ref()).ok_or_else(|| {
        let says = "the grant is of another backend; give it back where it came from";
        Error::new(ErrorKind::InvalidInput, Effect::None, NAME, operation, says).with_key(&grant.claim.key)
    })
}

fn lost(key: &LockKey) -> Error {
    let says = "the key or its lease is gone: it ended, or was taken away; stop the work that it guards";
    Error::new(ErrorKind::Lost, Effect::None, NAME, "renew", says).with_key(key)
}
