//! Family E: the store forgets, or goes back.

mod failover;
mod forget;
mod gray;
mod members;
mod power;
mod restart;
mod tokens;

use lock_testkit::RedisServer;

use super::Scenario;
use crate::lab::{Clocked, Contender, Place, Setup, Stage};
use crate::strategy::Kind::{self, BlindDelete, GetSet, Reentrant, SetnxExpire, Token, TokenWatch};
use crate::{Failure, Store};

pub(super) const ALL: &[Scenario] = &[
    failover::FAILOVER,
    failover::WAIT_UNREPLICATED,
    failover::WAIT_FOR_ONE_OF_TWO,
    failover::SPLIT_BRAIN,
    failover::SPLIT_BRAIN_FENCED,
    restart::RESTART,
    power::KILL,
    power::CUT_EVERYSEC,
    power::CUT_ALWAYS,
    restart::DELAYED_RESTART,
    forget::EVICT_VOLATILE,
    forget::EVICT_ANY,
    forget::FLUSH,
    gray::NO_SCRIPTS,
    gray::SILENT,
    gray::BUSY,
    tokens::DATA_LOST,
    tokens::CLOCK_BACK,
    tokens::BOTH_RESET,
];

/// The strategies that keep their locks on one Redis.
const ONE_REDIS: &[Kind] = &[SetnxExpire, GetSet, BlindDelete, Token, TokenWatch, Reentrant];

/// Redis servers of a scenario's own, of which one is struck: that alone, or with the two others of Redlock's three.
struct Servers {
    struck: Clocked<RedisServer>,
    others: Vec<Clocked<RedisServer>>,
}

impl Servers {
    /// As many as the strategy asks; the one that is struck has these lines of configuration.
    fn start(stage: &Stage<'_>, config: &[(&str, &str)]) -> Result<Self, Failure> {
        let others = if stage.kind().store() == Store::Nodes { 2 } else { 0 };
        let others = (0..others).map(|_| stage.lab.own_redis(&[])).collect::<Result<_, _>>()?;
        Ok(Self { struck: stage.lab.own_redis(config)?, others })
    }

    fn place(&self) -> Place {
        self.with(&self.struck.server)
    }

    /// With this server in the place of the one that is struck.
    fn with(&self, server: &RedisServer) -> Place {
        let others = self.others.iter().map(|other| &other.server);
        let all: Vec<_> = [server].into_iter().chain(others).collect();
        if self.others.is_empty() { Place::redis(&all) } else { Place::nodes(&all) }
    }

    fn all(&self) -> impl Iterator<Item = &Clocked<RedisServer>> {
        [&self.struck].into_iter().chain(&self.others)
    }

    /// A. Of three nodes it reaches two, and the struck one is one of them, so that each decides.
    async fn a(&self, stage: &Stage<'_>) -> Result<Contender, Failure> {
        let a = stage.contender_at("a", &self.place(), Setup::patient()).await?;
        if let Some(third) = a.proxies().get(2) {
            third.black_hole();
        }
        Ok(a)
    }

    /// A, who holds the lock by a long lease.
    async fn holder(&self, stage: &Stage<'_>) -> Result<Contender, Failure> {
        let a = self.a(stage).await?;
        a.acquire(stage.long()).await?;
        Ok(a)
    }
}

/// B, who has just come, tries to get what A holds.
async fn newcomer(stage: &Stage<'_>, place: &Place) -> Result<(), Failure> {
    let b = stage.contender_at("b", place, Setup::patient()).await?;
    if let Some(held) = b.try_acquire(stage.long()).await? {
        held.release().await?;
    }
    Ok(())
}
