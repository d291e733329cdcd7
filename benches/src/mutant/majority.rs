//! What counts as a majority.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_core::wait::{self, Attempt};
use lock_core::{Backend, Claim, Grant, Moment, Renew, Renewal, Result, Stop};
use lock_redis::{Call, Config, Connection, Script};
use redis::Value;
use tokio::time::timeout;

use super::Mutant;
use super::flawed::{Flaw, flawed, load, lost, ours};
use crate::Strategy;
use crate::strategy::{Kind, Seat};

pub(super) const ALL: &[Mutant] = &[OF_THE_ANSWERS, NO_VALIDITY, HALF_UNDONE];

/// A majority of the nodes that answer is none: two halves of a parted network have one each.
const OF_THE_ANSWERS: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-redlock-answered",
        "",
        "as redlock, but a majority of the nodes that have answered is enough",
        Kind::Redlock,
        |seat| counted(seat, Count::OfTheAnswers).boxed(),
    ),
    flaw: "who reaches a minority alone has the lock",
    caught_by: &["S44minority", "S32"],
};

/// Step 3 of redis.io's algorithm left out, and the lease counted from there; for extensions redsync did so until its pull
/// request 71.
const NO_VALIDITY: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-redlock-no-validity",
        "",
        "as redlock, but nobody asks how long a majority took to answer",
        Kind::Redlock,
        |seat| counted(seat, Count::Whenever).boxed(),
    ),
    flaw: "votes that have ended on their nodes make a lock",
    caught_by: &["C3", "S32"],
};

/// redis.io: a client that has failed unlocks all the instances, "even the instances it believed it was not able to lock".
const HALF_UNDONE: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-redlock-half-undone",
        "",
        "as redlock, but a lost round is undone only where it has heard yes",
        Kind::Redlock,
        |seat| counted(seat, Count::UndoingYes).boxed(),
    ),
    flaw: "the votes whose replies were lost keep everybody out until they end",
    caught_by: &["S25"],
};

/// How votes are counted, and what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    OfTheAnswers,
    Whenever,
    UndoingYes,
}

async fn counted(seat: &Seat, count: Count) -> Result<Arc<dyn Backend>> {
    let config = Config::new().with_request_limit(seat.request_limit);
    let nodes: Vec<_> = join_all(seat.urls.iter().map(|url| Connection::open(url, config.clone()))).await;
    let nodes = nodes.into_iter().collect::<Result<_>>()?;
    let scripts = [
        include_str!("../../../lock-redlock/src/acquire.lua"),
        include_str!("../../../lock-redlock/src/renew.lua"),
        include_str!("../../../lock-redlock/src/release.lua"),
    ];
    load(&seat.urls, &scripts).await?;
    let [acquire, renew, release] = scripts.map(Script::new);
    flawed(Counted { ours: ours(Kind::Redlock, seat).await?, nodes, count, acquire, renew, release })
}

/// Ours number the rounds, so that the undoing of one leaves the next alone. These undo one before they begin the next.
const ROUND: &str = "1";

struct Counted {
    ours: Arc<dyn Backend>,
    nodes: Vec<Connection>,
    count: Count,
    acquire: Script,
    renew: Script,
    release: Script,
}

impl Counted {
    /// Asks these nodes by a script that begins its answer with 1 for yes; none of one that does not answer in time.
    async fn ask(
        &self,
        nodes: impl IntoIterator<Item = &Connection>,
        script: &Script,
        claim: &Claim,
        args: &[&str],
    ) -> Vec<Option<bool>> {
        // Five seconds are longer than any lease that a scenario lets end.
        let limit = Duration::from_millis(if self.count == Count::Whenever { 5_000 } else { 500 });
        let (key, id) = (format!("hasp:{}", claim.key), format!("{:032x}", claim.id.bits()));
        let (keys, args) = ([&*key], [&[&*id], args].concat());
        let call = Call { keys: &keys, args: &args };
        let call = &call;
        let votes = nodes.into_iter().map(|node| async move {
            let answer = timeout(limit, node.run_script::<Value>("vote", script, call)).await.ok()?.ok()?;
            Some(answer == Value::Int(1) || answer == Value::Array(vec![Value::Int(1)]))
        });
        join_all(votes).await
    }

    fn is_enough(&self, votes: &[Option<bool>]) -> bool {
        let yes = votes.iter().filter(|vote| **vote == Some(true)).count();
        let answered = votes.iter().flatten().count();
        let of = if self.count == Count::OfTheAnswers { answered } else { votes.len() };
        yes > of / 2
    }

    fn counts_from(&self, sent_at: Moment) -> Moment {
        if self.count == Count::Whenever { Moment::now() } else { sent_at }
    }

    async fn attempt(&self, claim: &Claim) -> Result<Attempt> {
        let ttl = claim.lease.ttl();
        let sent_at = Moment::now();
        let votes = self.ask(&self.nodes, &self.acquire, claim, &[ROUND, &ttl.as_millis().to_string(), ""]).await;
        if self.is_enough(&votes) {
            return Ok(Attempt::Granted(Grant::new(claim.clone(), self.counts_from(sent_at), ttl)));
        }
        let is_undone = |vote: &Option<bool>| self.count != Count::UndoingYes || *vote == Some(true);
        let undone = self.nodes.iter().zip(&votes).filter(|(_, vote)| is_undone(vote)).map(|(node, _)| node);
        self.ask(undone, &self.release, claim, &[""]).await;
        Ok(Attempt::Busy { remaining: None })
    }

    async fn renew_one(&self, renew: &Renew<'_>) -> Result<Renewal> {
        let (millis, sent_at) = (renew.ttl.as_millis().to_string(), Moment::now());
        let votes = self.ask(&self.nodes, &self.renew, &renew.grant.claim, &[&millis, &millis, ROUND]).await;
        if self.is_enough(&votes) { Ok(Renewal::new(self.counts_from(sent_at), renew.ttl)) } else { Err(lost()) }
    }
}

#[async_trait]
impl Flaw for Counted {
    fn ours(&self) -> &dyn Backend {
        &*self.ours
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        Ok(match self.attempt(claim).await? {
            Attempt::Granted(grant) => Some(grant),
            Attempt::Busy { .. } => None,
        })
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        wait::poll(stop, Duration::from_millis(100), || self.attempt(claim)).await
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        join_all(batch.iter().map(|renew| self.renew_one(renew))).await
    }
}
