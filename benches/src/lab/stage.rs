use std::time::Duration;

use lock_core::Lease;
use lock_testkit::history::History;

use super::{Contender, Lab, PATIENCE, Place, Resource, Setup};
use crate::strategy::Kind;
use crate::tell::Transcript;
use crate::{Failure, Strategy};

/// Where one scenario is played with one strategy: servers that are warm, a key and a history of its own.
pub(crate) struct Stage<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) strategy: Strategy,
    /// A name that no other cell uses.
    pub(crate) key: String,
    pub(crate) history: History,
    /// Where what goes over the wire is written down, if it is to be told.
    pub(crate) transcript: Option<Transcript>,
}

impl Stage<'_> {
    pub(crate) fn kind(&self) -> Kind {
        self.strategy.kind()
    }

    /// A contender with time to spare, at the lab's warm servers.
    pub(crate) async fn contender(&self, name: &str) -> Result<Contender, Failure> {
        self.contender_with(name, Setup::patient()).await
    }

    /// A contender that is to be paused or killed: its store gives it up two seconds later, or when its lease ends.
    pub(crate) async fn frail(&self, name: &str) -> Result<Contender, Failure> {
        self.contender_with(name, Setup::frail()).await
    }

    pub(crate) async fn contender_with(&self, name: &str, setup: Setup) -> Result<Contender, Failure> {
        self.contender_at(name, &self.lab.place(self.kind().store())?, setup).await
    }

    /// A contender at servers of the scenario's own.
    pub(crate) async fn contender_at(&self, name: &str, place: &Place, setup: Setup) -> Result<Contender, Failure> {
        Contender::start(self, place, setup, name).await
    }

    /// A fixed lease that is soon over: the shortest that leaves a busy machine room to act within it.
    pub(crate) fn short(&self) -> Lease {
        Lease::fixed(self.short_ttl())
    }

    pub(crate) fn short_ttl(&self) -> Duration {
        Duration::from_millis(match self.kind() {
            Kind::SetnxExpire | Kind::Etcd | Kind::ZooKeeper => 1_000,
            // Each node may take half a second.
            Kind::Redlock | Kind::RedlockFenced => 1_000,
            Kind::Memory | Kind::GetSet | Kind::BlindDelete | Kind::Token | Kind::TokenWatch | Kind::Reentrant => 400,
        })
    }

    /// A fixed lease that outlives the scenario; within what ZooKeeper grants, half its session.
    pub(crate) fn long(&self) -> Lease {
        Lease::fixed(Duration::from_secs(14))
    }

    /// A lease that is kept alive as long as its holder runs.
    pub(crate) fn renewed(&self) -> Lease {
        Lease::renewed(self.short_ttl())
    }

    /// How long after the end of its lease a lock may be stuck before that is a finding: a store may count in whole seconds,
    /// and etcd and ZooKeeper end what has expired by a timer of their own.
    pub(crate) fn bound(&self) -> Duration {
        self.short_ttl() * 3 + Duration::from_secs(4)
    }

    /// A fresh client gets the lock within [`bound`](Stage::bound), or `Stuck` is written down.
    pub(crate) async fn probe(&self) -> Result<(), Failure> {
        self.contender("prober").await?.probe(self.short(), self.bound()).await
    }

    /// A counter in a table of SQLite.
    pub(crate) fn table(&self, fenced: bool) -> Resource {
        let name = self.key.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        let file = self.lab.folder().join(format!("{name}{}.sqlite", if fenced { "-fenced" } else { "" }));
        Resource::Sqlite { file: file.display().to_string(), fenced }
    }

    /// A counter in a hash of Redis.
    pub(crate) fn hash(&self, fenced: bool) -> Resource {
        let key = format!("guarded:{}{}", self.key, if fenced { "+f" } else { "" });
        Resource::Redis { url: self.lab.redis().server.url(), key, fenced }
    }

    /// Waits until a condition of the store holds.
    ///
    /// # Errors
    ///
    /// If it does not within [`PATIENCE`]: the scenario could not be made.
    pub(crate) async fn until(
        &self,
        what: &str,
        mut condition: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let waiting = async {
            while !condition()? {
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, waiting).await.map_err(|_| format!("not within {PATIENCE:?}: {what}"))?
    }
}
