use std::sync::Arc;
use std::time::Duration;

use lock_core::{ErrorKind, Lease};

use super::link::{Link, Pending};
use super::{Acquiring, Claimed, Held};
use crate::Failure;
use crate::lab::protocol::{Answer, Ask, Limits, Resource, Wanted};
use crate::lab::{Gate, PATIENCE};

/// A client of a contender: locks, and connections of its own.
#[derive(Clone)]
pub(crate) struct Client {
    pub(super) link: Arc<Link>,
    pub(super) strategy: &'static str,
    pub(super) urls: Vec<String>,
    pub(super) limits: Limits,
    pub(super) name: String,
    pub(super) key: String,
}

impl Client {
    pub(super) async fn connect(&self) -> Result<(), Failure> {
        let (client, strategy) = (self.name.clone(), self.strategy.to_owned());
        let ask = Ask::Connect { client, strategy, urls: self.urls.clone(), limits: self.limits };
        self.ask(ask).await?.done("connects")
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The same client with another key.
    pub(crate) fn on(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }

    /// Waits for the lock, which must come within [`PATIENCE`].
    pub(crate) async fn acquire(&self, lease: Lease) -> Result<Held, Failure> {
        self.acquiring(lease, PATIENCE)?.held().await
    }

    /// Begins to wait for the lock.
    pub(crate) fn acquiring(&self, lease: Lease, within: Duration) -> Result<Acquiring, Failure> {
        self.acquiring_for(lease, within, None)
    }

    /// Begins to wait for the lock, for this owner.
    pub(crate) fn acquiring_for(
        &self,
        lease: Lease,
        within: Duration,
        owner: Option<u128>,
    ) -> Result<Acquiring, Failure> {
        let hold = self.link.fresh_name("hold");
        let (client, wanted) = (self.name.clone(), self.wanted(lease, owner));
        let pending = self.begin(Ask::Acquire { client, wanted, within, hold: hold.clone() })?;
        Ok(Acquiring { client: self.clone(), hold, pending })
    }

    /// Tries once; none if it is busy.
    pub(crate) async fn try_acquire(&self, lease: Lease) -> Result<Option<Held>, Failure> {
        self.try_acquire_for(lease, None).await
    }

    pub(crate) async fn try_acquire_for(&self, lease: Lease, owner: Option<u128>) -> Result<Option<Held>, Failure> {
        let hold = self.link.fresh_name("hold");
        let (client, wanted) = (self.name.clone(), self.wanted(lease, owner));
        match self.ask(Ask::TryAcquire { client, wanted, hold: hold.clone() }).await? {
            Answer::Granted { .. } => Ok(Some(Held { client: self.clone(), hold })),
            Answer::Busy => Ok(None),
            other => Err(format!("{} tries, and the answer is {other:?}", self.name).into()),
        }
    }

    /// Begins to try once; the answer may be an error.
    pub(crate) fn trying(&self, lease: Lease) -> Result<Acquiring, Failure> {
        let hold = self.link.fresh_name("hold");
        let (client, wanted) = (self.name.clone(), self.wanted(lease, None));
        let pending = self.begin(Ask::TryAcquire { client, wanted, hold: hold.clone() })?;
        Ok(Acquiring { client: self.clone(), hold, pending })
    }

    /// As a fresh client, gets the lock within `bound`, or writes down that it is stuck.
    pub(crate) async fn probe(&self, lease: Lease, bound: Duration) -> Result<(), Failure> {
        let (client, wanted) = (self.name.clone(), self.wanted(lease, None));
        match self.ask(Ask::Probe { client, wanted, bound }).await? {
            Answer::Released | Answer::NotHeld => Ok(()),
            answer if answer.is_error(ErrorKind::TimedOut) => Ok(()),
            other => Err(format!("{} probes, and the answer is {other:?}", self.name).into()),
        }
    }

    /// A claim for the backend itself, without the driver's care for what was lost.
    pub(crate) fn claim(&self, lease: Lease) -> Claimed {
        self.claim_for(lease, None)
    }

    pub(crate) fn claim_for(&self, lease: Lease, owner: Option<u128>) -> Claimed {
        let claim = self.link.fresh_name("claim");
        Claimed { client: self.clone(), claim, wanted: self.wanted(lease, owner) }
    }

    pub(crate) async fn read(&self, resource: &Resource) -> Result<u64, Failure> {
        match self.ask(Ask::Read { client: self.name.clone(), resource: resource.clone() }).await? {
            Answer::Value { value } => Ok(value),
            other => Err(format!("{} reads, and the answer is {other:?}", self.name).into()),
        }
    }

    /// Writes, with the hold's token where the resource checks it; whether it was accepted.
    pub(crate) async fn write(&self, resource: &Resource, value: u64, held: &Held) -> Result<bool, Failure> {
        self.writing(resource, value, held)?.accepted().await
    }

    pub(crate) fn writing(&self, resource: &Resource, value: u64, held: &Held) -> Result<Pending, Failure> {
        let (client, hold) = (self.name.clone(), Some(held.hold.clone()));
        self.begin(Ask::Write { client, resource: resource.clone(), value, hold, gate: None })
    }

    /// The same, where the write is on its way until the gate is opened.
    pub(crate) fn writing_late(
        &self,
        resource: &Resource,
        value: u64,
        held: &Held,
        gate: &Gate,
    ) -> Result<Pending, Failure> {
        let (client, hold) = (self.name.clone(), Some(held.hold.clone()));
        self.begin(Ask::Write { client, resource: resource.clone(), value, hold, gate: Some(gate.path()) })
    }

    /// Writes by right of a claim that was put to the backend itself: there is no guard to look at.
    pub(crate) async fn write_bare(&self, resource: &Resource, value: u64) -> Result<bool, Failure> {
        let client = self.name.clone();
        self.begin(Ask::Write { client, resource: resource.clone(), value, hold: None, gate: None })?.accepted().await
    }

    /// Reads, adds one and writes; whether that was accepted.
    pub(crate) async fn increment(&self, resource: &Resource, held: &Held) -> Result<bool, Failure> {
        let (client, hold) = (self.name.clone(), Some(held.hold.clone()));
        self.begin(Ask::Increment { client, resource: resource.clone(), hold })?.accepted().await
    }

    /// Whether the store says that somebody holds the lock.
    pub(crate) async fn inspect(&self) -> Result<bool, Failure> {
        match self.ask(Ask::Inspect { client: self.name.clone(), key: self.key.clone() }).await? {
            Answer::Holder { held } => Ok(held),
            other => Err(format!("{} inspects, and the answer is {other:?}", self.name).into()),
        }
    }

    /// Waits until the store says that nobody holds the lock.
    pub(crate) async fn free(&self) -> Result<(), Failure> {
        let free = async {
            while self.inspect().await? {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, free).await.map_err(|_| format!("not free within {PATIENCE:?}"))?
    }

    /// Removes the lock as an administrator does.
    pub(crate) async fn force_release(&self) -> Result<Answer, Failure> {
        self.ask(Ask::ForceRelease { client: self.name.clone(), key: self.key.clone() }).await
    }

    pub(super) async fn ask(&self, ask: Ask) -> Result<Answer, Failure> {
        self.begin(ask)?.answer().await
    }

    pub(super) fn begin(&self, ask: Ask) -> Result<Pending, Failure> {
        self.link.begin(ask)
    }

    fn wanted(&self, lease: Lease, owner: Option<u128>) -> Wanted {
        Wanted {
            key: self.key.clone(),
            ttl: lease.ttl(),
            renewed: lease.is_renewed(),
            owner: owner.map(|owner| owner.to_string()),
        }
    }
}
