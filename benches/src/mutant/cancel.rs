//! Waiting no longer.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use lock_core::{Backend, Claim, Grant, Result, Stop};

use super::Mutant;
use super::flawed::{Flaw, flawed, ours};
use crate::Strategy;
use crate::strategy::{Kind, Seat};

pub(super) const ALL: &[Mutant] = &[VOTES_LEFT, PLACE_LEFT];

/// What becomes of every async lock whose future is simply dropped, with the requests of its round under way.
const VOTES_LEFT: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-redlock-votes-left",
        "",
        "as redlock, but who waits no longer drops the round that is under way",
        Kind::Redlock,
        |seat| dropped(Kind::Redlock, seat).boxed(),
    ),
    flaw: "the votes that a dropped round has won keep everybody out until they end",
    caught_by: &["S49"],
};

const PLACE_LEFT: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-etcd-place-left",
        "",
        "as etcd, but who waits no longer drops the wait, and leaves its key in the queue",
        Kind::Etcd,
        |seat| dropped(Kind::Etcd, seat).boxed(),
    ),
    flaw: "everybody behind waits for one who does not want the lock",
    caught_by: &["S54"],
};

async fn dropped(kind: Kind, seat: &Seat) -> Result<Arc<dyn Backend>> {
    flawed(Dropped(ours(kind, seat).await?))
}

struct Dropped(Arc<dyn Backend>);

#[async_trait]
impl Flaw for Dropped {
    fn ours(&self) -> &dyn Backend {
        &*self.0
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        tokio::select! {
            // The wait below hears of nothing: it is dropped first.
            biased;
            () = stop.fired() => Ok(None),
            granted = self.0.acquire(claim, stop) => granted,
        }
    }
}
