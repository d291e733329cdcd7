//! A contender as the lab sees it: a child process with a proxy in front of every server that it uses.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::Deref;
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lock_clock::Clock;
use lock_core::{ErrorKind, Lease};
use lock_testkit::Process;
use lock_testkit::fault::Proxy;
use lock_testkit::history::History;
use tokio::sync::oneshot;

use super::protocol::{Answer, Ask, Asked, Limits, Line, Resource, Wanted};
use super::{Gate, Lab, PATIENCE, Place, Stage};
use crate::{Failure, tell};

/// How a contender is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    /// Whether all of it runs on one thread, so that blocking code starves its renewals.
    pub(crate) current_thread: bool,
}

impl Setup {
    /// A client with time to spare: nothing of it ends before the scenario does.
    pub(crate) const fn patient() -> Self {
        let session = Duration::from_secs(30);
        let limits = Limits { request: PATIENCE, session, unavailable_after: None, replicas: None };
        Self { limits, current_thread: false }
    }

    /// A client that its store gives up soon after it falls silent: for holders that are to be paused or killed.
    pub(crate) const fn frail() -> Self {
        let limits = Limits { session: Duration::from_secs(2), ..Self::patient().limits };
        Self { limits, ..Self::patient() }
    }

    pub(crate) const fn with_request_limit(mut self, limit: Duration) -> Self {
        self.limits.request = limit;
        self
    }

    pub(crate) const fn with_unavailable_after(mut self, patience: Duration) -> Self {
        self.limits.unavailable_after = Some(patience);
        self
    }

    /// A lock counts when so many replicas have it, where the strategy can ask for that.
    pub(crate) const fn with_replicas(mut self, count: u32) -> Self {
        self.limits.replicas = Some(count);
        self
    }

    pub(crate) const fn on_one_thread(mut self) -> Self {
        self.current_thread = true;
        self
    }
}

/// Proves that contenders see their clocks.
pub(super) async fn prove_clocks(lab: &Lab) -> Result<(), Failure> {
    let slot = lab.slot()?;
    let link = Link::start(lab, &slot, Setup::patient(), &History::new(), "whose clocks are read")?;
    let Answer::Clocks { realtime, monotonic, boottime, lab: of_the_lab } = link.begin(Ask::Clocks)?.answer().await?
    else {
        return Err("a contender does not tell what its clocks say".into());
    };
    for (clock, told) in
        [(Clock::Wall, realtime), (Clock::Monotonic, monotonic), (Clock::Boottime, boottime), (Clock::Lab, of_the_lab)]
    {
        slot.prove(clock, || Ok(Duration::from_nanos(told)))?;
    }
    Ok(())
}

/// A process of its own, with one client that bears its name; more are made with [`client`](Contender::client). It is killed
/// when it is dropped.
pub(crate) struct Contender {
    link: Arc<Link>,
    proxies: Arc<[Proxy]>,
    client: Client,
    slot: super::Slot,
}

impl Deref for Contender {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        // What is held by somebody who still asks it must not keep it alive.
        drop(self.link.process.kill());
    }
}

impl Contender {
    /// Starts the process and connects its client.
    pub(super) async fn start(stage: &Stage<'_>, place: &Place, setup: Setup, name: &str) -> Result<Self, Failure> {
        let proxies: Arc<[Proxy]> = place.proxies()?.into();
        if let Some(transcript) = &stage.transcript {
            transcript.of(name, &proxies);
        }
        let slot = stage.lab.slot()?;
        let link = Arc::new(Link::start(stage.lab, &slot, setup, &stage.history, name)?);
        let urls = if proxies.is_empty() { place.urls() } else { place.urls_at(proxies.iter().map(Proxy::addr)) };
        let client = Client {
            link: Arc::clone(&link),
            strategy: stage.strategy.name(),
            urls,
            limits: setup.limits,
            name: name.to_owned(),
            key: stage.key.clone(),
        };
        client.connect().await?;
        Ok(Self { link, proxies, client, slot })
    }

    /// The proxy in front of the first server, or the only one.
    pub(crate) fn proxy(&self) -> &Proxy {
        &self.proxies[0]
    }

    /// One for each server, in their order.
    pub(crate) fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }

    /// Its clocks.
    pub(crate) const fn slot(&self) -> &super::Slot {
        &self.slot
    }

    /// Another client in the same process, with connections of its own by the same proxies.
    pub(crate) async fn client(&self, name: &str) -> Result<Client, Failure> {
        let client = Client { name: name.to_owned(), ..self.client.clone() };
        client.connect().await?;
        Ok(client)
    }

    /// Stops it with SIGSTOP; every thread of it stands still.
    pub(crate) fn stop(&self) -> Result<(), Failure> {
        self.tell("is stopped (SIGSTOP)");
        Ok(self.link.process.stop()?)
    }

    pub(crate) fn cont(&self) -> Result<(), Failure> {
        self.tell("goes on (SIGCONT)");
        Ok(self.link.process.cont()?)
    }

    /// Kills it with SIGKILL: nothing of it acts any more, but what is in the proxies goes on its way.
    pub(crate) fn kill(&self) -> Result<(), Failure> {
        self.tell("is killed (SIGKILL)");
        self.link.process.kill()?;
        self.link.history.ended(self.client.name.as_str());
        Ok(())
    }

    fn tell(&self, what: &str) {
        tell::act(&format!("{} {what}", self.client.name));
    }

    /// Blocks the thread that serves its asks.
    pub(crate) fn block(&self, time: Duration) -> Result<Pending, Failure> {
        self.tell(&format!("blocks its only thread for {time:?}"));
        self.client.begin(Ask::Block { time })
    }
}

/// A client of a contender: locks, and connections of its own.
#[derive(Clone)]
pub(crate) struct Client {
    link: Arc<Link>,
    strategy: &'static str,
    urls: Vec<String>,
    limits: Limits,
    name: String,
    key: String,
}

impl Client {
    async fn connect(&self) -> Result<(), Failure> {
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

    async fn ask(&self, ask: Ask) -> Result<Answer, Failure> {
        self.begin(ask)?.answer().await
    }

    fn begin(&self, ask: Ask) -> Result<Pending, Failure> {
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

/// An acquisition that has begun.
pub(crate) struct Acquiring {
    client: Client,
    hold: String,
    pending: Pending,
}

impl Acquiring {
    /// Waits until it is granted; any other answer is a failure of the scenario.
    pub(crate) async fn held(self) -> Result<Held, Failure> {
        let name = self.client.name.clone();
        match self.outcome().await? {
            Ok(held) => Ok(held),
            Err(answer) => Err(format!("{name} acquires, and the answer is {answer:?}").into()),
        }
    }

    /// Waits for its answer, whatever that is.
    pub(crate) async fn outcome(self) -> Result<Result<Held, Answer>, Failure> {
        let Self { client, hold, pending } = self;
        Ok(match pending.answer().await? {
            Answer::Granted { .. } => Ok(Held { client, hold }),
            other => Err(other),
        })
    }

    /// Whether there is an answer, without waiting.
    pub(crate) fn is_answered(&mut self) -> bool {
        self.pending.is_answered()
    }

    /// Drops its future in the contender.
    pub(crate) async fn cancel(self) -> Result<(), Failure> {
        let id = self.pending.id;
        self.client.ask(Ask::Cancel { id }).await?.done("cancels")
    }

    /// The same, and gives back what may have been granted meanwhile.
    pub(crate) async fn give_up(self) -> Result<(), Failure> {
        let held = Held { client: self.client.clone(), hold: self.hold.clone() };
        self.cancel().await?;
        // If it was not granted, there is nothing to release, and the answer says so.
        held.release().await.map(drop)
    }
}

/// A lock that a contender holds. It holds it until it is told to release it, whatever becomes of this value.
#[derive(Clone)]
pub(crate) struct Held {
    client: Client,
    hold: String,
}

impl Held {
    /// Whether the guard says that it is held; that is written down as something that its holder acts on.
    pub(crate) async fn is_held(&self) -> Result<bool, Failure> {
        Ok(matches!(self.client.ask(Ask::Look { hold: self.hold.clone() }).await?, Answer::Held { .. }))
    }

    /// How long the guard has to go; none if it is lost.
    pub(crate) async fn remaining(&self) -> Result<Option<Duration>, Failure> {
        Ok(match self.client.ask(Ask::Look { hold: self.hold.clone() }).await? {
            Answer::Held { remaining } => Some(remaining),
            _ => None,
        })
    }

    /// Waits until the guard says that it is lost: why.
    pub(crate) async fn lost(&self) -> Result<String, Failure> {
        match self.client.ask(Ask::Lost { hold: self.hold.clone() }).await? {
            Answer::Lost { reason } => Ok(reason),
            other => Err(format!("waited for a loss, and the answer is {other:?}").into()),
        }
    }

    /// If its guard says that it is held, writes a resource that counts its writes.
    pub(crate) async fn write(&self, resource: &Resource) -> Result<Answer, Failure> {
        let (resource, hold) = (resource.clone(), self.hold.clone());
        self.client.ask(Ask::WriteHeld { resource, hold }).await
    }

    pub(crate) async fn extend(&self, ttl: Duration) -> Result<Answer, Failure> {
        self.extending(ttl)?.answer().await
    }

    pub(crate) fn extending(&self, ttl: Duration) -> Result<Pending, Failure> {
        self.client.begin(Ask::Extend { hold: self.hold.clone(), ttl })
    }

    pub(crate) async fn release(&self) -> Result<Answer, Failure> {
        self.releasing()?.answer().await
    }

    pub(crate) fn releasing(&self) -> Result<Pending, Failure> {
        self.client.begin(Ask::Release { hold: self.hold.clone() })
    }

    /// Drops the guard.
    pub(crate) async fn drop_guard(&self) -> Result<(), Failure> {
        self.client.ask(Ask::Drop { hold: self.hold.clone() }).await?.done("drops its guard")
    }
}

/// A claim that is put to the backend itself.
#[derive(Clone)]
pub(crate) struct Claimed {
    client: Client,
    claim: String,
    wanted: Wanted,
}

impl Claimed {
    /// Tries once; the same claim again finds its own grant where the strategy can.
    pub(crate) async fn try_acquire(&self) -> Result<Answer, Failure> {
        self.trying()?.answer().await
    }

    pub(crate) fn trying(&self) -> Result<Pending, Failure> {
        let (client, wanted) = (self.client.name.clone(), self.wanted.clone());
        self.client.begin(Ask::RawAcquire { client, wanted, claim: self.claim.clone() })
    }

    pub(crate) async fn renew(&self, ttl: Duration) -> Result<Answer, Failure> {
        self.renewing(ttl)?.answer().await
    }

    pub(crate) fn renewing(&self, ttl: Duration) -> Result<Pending, Failure> {
        self.client.begin(Ask::RawRenew { claim: self.claim.clone(), ttl })
    }

    pub(crate) async fn release(&self) -> Result<Answer, Failure> {
        self.releasing()?.answer().await
    }

    pub(crate) fn releasing(&self) -> Result<Pending, Failure> {
        self.client.begin(Ask::RawRelease { claim: self.claim.clone() })
    }

    pub(crate) async fn abandon(&self) -> Result<Answer, Failure> {
        self.client.ask(Ask::RawAbandon { claim: self.claim.clone() }).await
    }
}

/// An ask without an answer yet.
pub(crate) struct Pending {
    id: u64,
    answer: oneshot::Receiver<Answer>,
}

impl Pending {
    /// Waits for the answer.
    pub(crate) async fn answer(self) -> Result<Answer, Failure> {
        self.answer.await.map_err(|_| "the contender has ended before it answered".into())
    }

    /// Whether there is an answer, without waiting.
    pub(crate) fn is_answered(&mut self) -> bool {
        // It is kept for `answer` by taking it out only there.
        !self.answer.is_empty() || self.answer.is_terminated()
    }

    /// Waits for the answer of a write: whether it was accepted.
    pub(crate) async fn accepted(self) -> Result<bool, Failure> {
        match self.answer().await? {
            Answer::Done => Ok(true),
            Answer::Refused => Ok(false),
            other => Err(format!("a write was answered with {other:?}").into()),
        }
    }
}

impl Answer {
    fn done(self, what: &str) -> Result<(), Failure> {
        match self {
            Self::Done => Ok(()),
            other => Err(format!("a client {what}, and the answer is {other:?}").into()),
        }
    }
}

/// The process and the lines between it and the lab.
struct Link {
    process: Process,
    input: Mutex<ChildStdin>,
    waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>,
    history: History,
    next: AtomicU64,
}

impl Link {
    fn start(lab: &Lab, slot: &super::Slot, setup: Setup, history: &History, name: &str) -> Result<Self, Failure> {
        let mut command = Process::command(lab.program());
        command.arg("__contender");
        if setup.current_thread {
            command.arg("--current-thread");
        }
        command.envs(slot.env()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let process = Process::spawn(command)?;
        let input = process.take_stdin().ok_or("a contender has no standard input")?;
        let output = process.take_stdout().ok_or("a contender has no standard output")?;
        let waiting = Arc::new(Mutex::new(HashMap::<u64, oneshot::Sender<Answer>>::new()));
        let (answers, events) = (Arc::clone(&waiting), history.clone());
        thread::Builder::new().name(format!("of contender {name}")).spawn(move || {
            for line in BufReader::new(output).lines() {
                // A contender that was killed may have ended within a line.
                let Ok(Ok(line)) = line.map(|line| serde_json::from_str::<Line>(&line)) else { break };
                match line {
                    Line::Event(event) => events.absorb(event),
                    Line::Answer { id, answer } => {
                        // The lab may have dropped the ask meanwhile.
                        let asker = lock(&answers).remove(&id);
                        drop(asker.map(|asker| asker.send(answer)));
                    }
                }
            }
            // Whoever waits is told that nothing comes.
            lock(&answers).clear();
        })?;
        Ok(Self { process, input: Mutex::new(input), waiting, history: history.clone(), next: AtomicU64::new(1) })
    }

    fn begin(&self, ask: Ask) -> Result<Pending, Failure> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        lock(&self.waiting).insert(id, sender);
        let mut line = serde_json::to_string(&Asked { id, ask })?;
        line.push('\n');
        lock(&self.input).write_all(line.as_bytes())?;
        Ok(Pending { id, answer })
    }

    fn fresh_name(&self, kind: &str) -> String {
        format!("{kind}-{}", self.next.fetch_add(1, Ordering::Relaxed))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
