//! A place in the queue of a lock: taking one, looking who is before it, and giving it up.

use std::sync::Arc;

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, ResponseHeader, SortOrder, SortTarget, Txn,
    TxnOp, TxnOpResponse, TxnResponse,
};
use lock_core::{Claim, Effect, Error, ErrorKind};

use crate::endpoints::Endpoints;
use crate::error::{Failure, NAME, explain};
use crate::keys::{self, Layout};
use crate::lease::Lease;
use crate::leases::Leases;
use crate::places::Choice;

/// Where a claim may stand: its key under one lease.
#[derive(Debug)]
pub(crate) struct Spot<'a> {
    pub(crate) leases: &'a Leases,
    pub(crate) endpoints: &'a Endpoints,
    pub(crate) claim: &'a Claim,
    pub(crate) lease: Arc<Lease>,
    pub(crate) queue: &'a str,
    pub(crate) key: String,
    pub(crate) choice: Choice,
    tombstone: String,
}

/// Where a claim stands.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It holds the lock, by a key of this create revision; `again` if an earlier request had put it there.
    First { revision: i64, again: bool },
    /// Somebody is before it.
    Behind { revision: i64, before: Before },
    /// It has no key, because somebody else has one.
    Outside,
    /// Its key is gone: the lease ended, or somebody deleted it.
    Gone,
    /// It was abandoned, so it may not stand anywhere.
    Undone,
    /// Its key is another claim's, which this client has left behind.
    Taken,
}

/// The key just before ours, as it was at a revision.
#[derive(Debug)]
pub(crate) struct Before {
    pub(crate) key: Vec<u8>,
    pub(crate) seen_at: i64,
}

impl<'a> Spot<'a> {
    pub(crate) fn new(
        leases: &'a Leases,
        endpoints: &'a Endpoints,
        layout: &Layout,
        claim: &'a Claim,
        queue: &'a str,
        lease: Arc<Lease>,
        choice: Choice,
    ) -> Self {
        let key = if choice.is_common {
            keys::common_place(queue, &leases.instance)
        } else {
            keys::place(queue, lease.id, claim.id)
        };
        let tombstone = layout.tombstone(lease.id, claim.id);
        Self { leases, endpoints, claim, lease, queue, key, choice, tombstone }
    }

    /// Takes the lock if nobody is in the queue; else leaves the queue as it is.
    pub(crate) async fn try_enter(&self) -> Result<Standing, Failure> {
        // Compared over the whole queue: true if it is empty.
        let empty = Compare::create_revision(self.queue, CompareOp::Equal, 0).with_prefix();
        let answer = self.enter_if(empty, GetOptions::new().with_limit(1)).await?;
        let revision = revision(&answer)?;
        if answer.succeeded() {
            return Ok(Standing::First { revision, again: false });
        }
        match self.refused(&answer)? {
            Refused::Undone => Ok(Standing::Undone),
            Refused::Ours(found) => self.stand_again(&found).await,
            Refused::Others | Refused::Absent => Ok(Standing::Outside),
        }
    }

    /// Takes a place at the end of the queue, and sees who is before it.
    pub(crate) async fn enter(&self) -> Result<Standing, Failure> {
        let absent = Compare::create_revision(&*self.key, CompareOp::Equal, 0);
        let answer = self.enter_if(absent, newest(2)).await?;
        let revision = revision(&answer)?;
        if !answer.succeeded() {
            return match self.refused(&answer)? {
                Refused::Undone => Ok(Standing::Undone),
                Refused::Ours(found) => self.stand_again(&found).await,
                Refused::Others => Ok(Standing::Taken),
                Refused::Absent => Err(Failure::Answer("a key that is and is not there")),
            };
        }
        let queued =
            answer.op_responses().into_iter().rev().find_map(got).ok_or(Failure::Answer("no list of the queue"))?;
        // The newest is ours.
        Ok(match queued.kvs().get(1) {
            Some(before) => Standing::Behind { revision, before: Before::new(before.key(), revision) },
            None => Standing::First { revision, again: false },
        })
    }

    /// Sees whether our key is still the one of this create revision, and who is before it.
    pub(crate) async fn look(&self, revision: i64, again: bool) -> Result<Standing, Failure> {
        let ours = Compare::create_revision(&*self.key, CompareOp::Equal, revision);
        let before = TxnOp::get(self.queue, Some(newest(1).with_max_create_revision(revision - 1)));
        // A transaction of nothing would be answered from the member's own, perhaps old, state.
        let absent = TxnOp::get(&*self.key, Some(GetOptions::new().with_count_only()));
        let answer = self.endpoints.txn(Txn::new().when([ours]).and_then([before]).or_else([absent])).await?;
        if !answer.succeeded() {
            return Ok(Standing::Gone);
        }
        let seen_at = self::revision(&answer)?;
        let before = answer.op_responses().into_iter().find_map(got).ok_or(Failure::Answer("no list of the queue"))?;
        Ok(match before.kvs().first() {
            Some(before) => Standing::Behind { revision, before: Before::new(before.key(), seen_at) },
            None => Standing::First { revision, again },
        })
    }

    /// Gives the place up, if it is the one of this create revision.
    pub(crate) async fn leave(&self, revision: i64) -> Result<(), Failure> {
        delete(self.endpoints, self.key.as_bytes(), revision).await?;
        self.leases.end_own(&self.lease).await;
        Ok(())
    }

    /// The error of a request after which our key may stand in the queue: the claim keeps it.
    pub(crate) fn undecided(&self, failure: Failure) -> Error {
        self.choice.keep();
        explain(failure, "acquire").with_effect(Effect::Unknown).with_key(&self.claim.key)
    }

    /// The error of a claim that was abandoned and is used again.
    pub(crate) fn undone(&self) -> Error {
        let says = "this claim was abandoned; make a new one";
        Error::new(ErrorKind::Backend, Effect::None, NAME, "acquire", says).with_key(&self.claim.key)
    }

    /// Puts our key if `condition` holds and the claim was not abandoned, and then lists the queue; else looks why not.
    async fn enter_if(&self, condition: Compare, list: GetOptions) -> Result<TxnResponse, Failure> {
        let alive = Compare::create_revision(&*self.tombstone, CompareOp::Equal, 0);
        let value = keys::value(self.claim.id, self.claim.label.as_deref());
        let under = || Some(PutOptions::new().with_lease(self.lease.id));
        let mut puts = vec![TxnOp::put(&*self.key, value, under())];
        let marks = !self.lease.is_marked();
        if marks {
            puts.push(TxnOp::put(self.leases.marker(&self.lease), "", under()));
        }
        puts.push(TxnOp::get(self.queue, Some(list)));
        let looks =
            [TxnOp::get(&*self.tombstone, Some(GetOptions::new().with_keys_only())), TxnOp::get(&*self.key, None)];
        let answer = self.endpoints.txn(Txn::new().when([condition, alive]).and_then(puts).or_else(looks)).await?;
        if marks && answer.succeeded() {
            self.lease.set_marked();
        }
        Ok(answer)
    }

    /// An earlier request of this claim had put its key.
    async fn stand_again(&self, found: &KeyValue) -> Result<Standing, Failure> {
        if found.lease() != self.lease.id {
            // Under a lease that new claims do not use any more, and that nobody keeps alive for this one.
            delete(self.endpoints, self.key.as_bytes(), found.create_revision()).await?;
            return Ok(Standing::Gone);
        }
        self.look(found.create_revision(), true).await
    }

    /// Why an entry was refused.
    fn refused(&self, answer: &TxnResponse) -> Result<Refused, Failure> {
        let looks: Vec<_> = answer.op_responses().into_iter().filter_map(got).collect();
        let [tombstone, own] = &looks[..] else { return Err(Failure::Answer("not two looks")) };
        if !tombstone.kvs().is_empty() {
            return Ok(Refused::Undone);
        }
        Ok(match own.kvs().first() {
            Some(found) if keys::is_of(self.claim.id, found.value()) => Refused::Ours(found.clone()),
            Some(_) => Refused::Others,
            None => Refused::Absent,
        })
    }
}

/// Why an entry was refused.
enum Refused {
    /// The claim was abandoned.
    Undone,
    /// Our key is there.
    Ours(KeyValue),
    /// Our key is another claim's.
    Others,
    /// It was for another reason.
    Absent,
}

impl Before {
    fn new(key: &[u8], seen_at: i64) -> Self {
        Self { key: key.to_owned(), seen_at }
    }
}

/// Deletes a key if it is still the one of this create revision; says whether it was.
pub(crate) async fn delete(endpoints: &Endpoints, key: &[u8], revision: i64) -> Result<bool, Failure> {
    let ours = Compare::create_revision(key, CompareOp::Equal, revision);
    let absent = TxnOp::get(key, Some(GetOptions::new().with_count_only()));
    let txn = Txn::new().when([ours]).and_then([TxnOp::delete(key, None)]).or_else([absent]);
    Ok(endpoints.txn(txn).await?.succeeded())
}

/// What a transaction's read answered.
pub(crate) fn got(response: TxnOpResponse) -> Option<GetResponse> {
    match response {
        TxnOpResponse::Get(answer) => Some(answer),
        TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => None,
    }
}

/// The store's revision when it answered; of a transaction that wrote, the revision of its writes.
pub(crate) fn revision(answer: &TxnResponse) -> Result<i64, Failure> {
    answer.header().map(ResponseHeader::revision).ok_or(Failure::Answer("no header"))
}

/// So many of a queue's newest keys, without their values.
fn newest(count: i64) -> GetOptions {
    let options = GetOptions::new().with_prefix().with_keys_only().with_limit(count);
    options.with_sort(SortTarget::Create, SortOrder::Descend)
}
