use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lock_core::Lease;
use lock_testkit::RedisServer;
use lock_testkit::fault::Proxy;
use lock_testkit::history::History;
use serde::Serialize;

use super::{Client, Contender, Lab, PATIENCE, Place, Resource, Setup};
use crate::strategy::Kind;
use crate::tell::{self, Transcript};
use crate::{Failure, Store, Strategy};

/// What is longer than all leases of the scenarios.
const LONG_AFTER: Duration = Duration::from_secs(60);

/// How long the store may go on to say that a lock is held which is free, and how long a client then tries in vain.
const STILL_HELD: [Duration; 2] = [Duration::from_millis(1_500), Duration::from_millis(500)];

/// Where one scenario is played with one strategy: servers that are warm, a key and a history of its own.
pub(crate) struct Stage<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) strategy: Strategy,
    /// A name that no other cell uses, nor is part of another's; every store writes it as it is.
    pub(crate) key: String,
    pub(crate) history: History,
    /// Where what goes over the wire is written down, if it is to be told.
    pub(crate) transcript: Option<Transcript>,
    figures: Mutex<Vec<Figure>>,
}

/// What a scenario has measured, beside what its history shows. Above its limit it breaks.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) of: &'static str,
    pub(crate) value: f64,
    /// None, if it is only told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at_most: Option<f64>,
}

impl Figure {
    pub(crate) fn is_too_much(&self) -> bool {
        self.at_most.is_some_and(|at_most| self.value > at_most)
    }
}

impl<'a> Stage<'a> {
    pub(crate) const fn new(
        lab: &'a Lab,
        strategy: Strategy,
        key: String,
        history: History,
        transcript: Option<Transcript>,
    ) -> Self {
        Self { lab, strategy, key, history, transcript, figures: Mutex::new(Vec::new()) }
    }
}

impl Stage<'_> {
    /// Writes a figure down.
    pub(crate) fn measured(&self, figure: Figure) {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).push(figure);
    }

    /// What was written down.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

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

    /// Another client beside this contender: in a process of its own, unless the locks are kept in the process.
    pub(crate) async fn beside(&self, contender: &Contender, name: &str) -> Result<Beside, Failure> {
        if self.kind().store() == Store::Process {
            return Ok(Beside { client: contender.client(name).await?, process: None });
        }
        let process = self.contender(name).await?;
        Ok(Beside { client: (*process).clone(), process: Some(process) })
    }

    /// What this cell has on a Redis.
    pub(crate) fn keys_on(&self, server: &RedisServer) -> Result<Vec<String>, Failure> {
        Ok(server.command(&["KEYS", &format!("*{}*", self.key)])?)
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

    /// When every lease is long over, a fresh client gets the lock, or `Stuck` is written down. Nobody else may run: where the
    /// store's clock can be set, the time passes at once.
    pub(crate) async fn probe_long_after(&self) -> Result<(), Failure> {
        self.probe_long_after_at(&self.lab.place(self.kind().store())?).await
    }

    /// The same at servers of the scenario's own.
    pub(crate) async fn probe_long_after_at(&self, place: &Place) -> Result<(), Failure> {
        if !self.clock_can_be_set() {
            let prober = self.contender_at("prober", place, Setup::patient()).await?;
            return prober.probe(self.short(), self.bound()).await;
        }
        tell::act("a minute passes for everybody");
        self.lab.clocks().step(LONG_AFTER)?;
        self.probe_at_once_at(place).await
    }

    /// A fresh client gets the lock without waiting for any lease to end, or `Stuck` is written down.
    pub(crate) async fn probe_at_once(&self) -> Result<(), Failure> {
        self.probe_at_once_at(&self.lab.place(self.kind().store())?).await
    }

    async fn probe_at_once_at(&self, place: &Place) -> Result<(), Failure> {
        let [still_held, in_vain] = STILL_HELD;
        let prober = self.contender_at("prober", place, Setup::patient()).await?;
        // Where the store says that the lock is free, a client that is slow on a busy machine must not look like one that
        // cannot get it.
        let bound = match tokio::time::timeout(still_held, prober.free()).await {
            Ok(free) => free.map(|()| PATIENCE)?,
            Err(_elapsed) => in_vain,
        };
        prober.probe(self.short(), bound).await
    }

    /// Whether the store lives by a clock of the lab.
    pub(crate) fn clock_can_be_set(&self) -> bool {
        matches!(self.kind().store(), Store::Process | Store::Redis | Store::Nodes)
    }

    /// Something that is on its way until it is opened.
    pub(crate) fn gate(&self) -> Gate {
        Gate(self.lab.folder().join(format!("{}.gate", self.key)))
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

    /// Waits until so much time has passed for everybody.
    pub(crate) async fn pass(&self, time: Duration) -> Result<(), Failure> {
        let end = self.lab.clocks().lab_now()? + time;
        self.until("time passes", || Ok(self.lab.clocks().lab_now()? >= end)).await
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

/// A client, with the process that it has for itself.
pub(crate) struct Beside {
    client: Client,
    process: Option<Contender>,
}

impl Beside {
    /// The proxies in front of its servers: none if the locks are kept in the process.
    pub(crate) fn proxies(&self) -> &[Proxy] {
        self.process.as_ref().map_or(&[], Contender::proxies)
    }
}

impl Deref for Beside {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// What holds up a write that goes through no network: a file that is there when it is open.
pub(crate) struct Gate(PathBuf);

impl Gate {
    pub(crate) fn open(&self) -> Result<(), Failure> {
        Ok(fs::write(&self.0, [])?)
    }

    pub(super) fn path(&self) -> String {
        self.0.display().to_string()
    }
}
