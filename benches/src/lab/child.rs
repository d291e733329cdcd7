//! The other side of a contender: the process that holds locks. It reads what it is asked to do line by line, does each thing
//! on a task of its own, and writes down at once what happens and what it answers.

use std::collections::HashMap;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lock_core::{Backend, Claim, Effect, ErrorKind, Grant, Lock, LockGuard, LockKey, Locks, Moment, Options, Owner};
use lock_core::{Release, Renew, Watch};
use lock_memory::Memory;
use lock_testkit::history::{Actor, Attempt, History, Hold};
use nix::time::ClockId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::protocol::{Answer, Ask, Asked, Limits, Line, Resource, Wanted};
use crate::strategy::Seat;
use crate::{Failure, Strategy};

/// Runs a contender until its standard input ends.
///
/// # Errors
///
/// If the runtime cannot be made.
pub(crate) fn run(current_thread: bool) -> Result<(), Failure> {
    let mut builder = if current_thread {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    // As many as a small container has.
    let runtime =
        if current_thread { builder.enable_all().build()? } else { builder.worker_threads(2).enable_all().build()? };
    let (lines, mut asked) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in stdin().lock().lines() {
            // The lab is gone, or has gone mad: there is nobody left to act for.
            let Ok(line) = line else { break };
            if lines.send(line).is_err() {
                break;
            }
        }
    });
    let child = Arc::new(Child::new());
    runtime.block_on(async move {
        while let Some(line) = asked.recv().await {
            match serde_json::from_str::<Asked>(&line) {
                Ok(Asked { id, ask }) => Arc::clone(&child).start(id, ask),
                Err(error) => eprintln!("this is no ask ({error}): {line}"),
            }
        }
    });
    // Nothing says good-bye: what is still held ends as after a crash.
    std::process::exit(0);
}

/// Everything that the process keeps between two asks.
struct Child {
    history: History,
    memory: Memory,
    clients: Mutex<HashMap<String, Client>>,
    holds: Mutex<HashMap<String, Arc<Held>>>,
    claims: Mutex<HashMap<String, Arc<Claimed>>>,
    tasks: Mutex<HashMap<u64, JoinHandle<()>>>,
}

#[derive(Clone)]
struct Client {
    locks: Locks,
    actor: Actor,
}

/// A lock that was granted.
struct Held {
    hold: Hold,
    watch: Watch,
    /// Taken by its release, or while it is being extended.
    guard: tokio::sync::Mutex<Option<LockGuard>>,
}

/// A claim that was put to the backend without the driver.
struct Claimed {
    backend: Arc<dyn Backend>,
    claim: Claim,
    /// The acquisition while it is not decided: the same claim again is the same acquisition.
    attempt: Mutex<Option<Attempt>>,
    grant: Mutex<Option<Grant>>,
    hold: Mutex<Option<Hold>>,
}

impl Child {
    fn new() -> Self {
        let history = History::on(lab_now);
        history.listen(|event| say(&Line::Event(event.clone())));
        Self {
            history,
            memory: Memory::new(),
            clients: Mutex::default(),
            holds: Mutex::default(),
            claims: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    fn start(self: Arc<Self>, id: u64, ask: Ask) {
        if let Ask::Cancel { id: other } = ask {
            let task = lock(&self.tasks).remove(&other);
            tokio::spawn(async move {
                if let Some(task) = task {
                    task.abort();
                    // Answered when its future has been dropped, not when that has been asked for.
                    drop(task.await);
                }
                say(&Line::Answer { id: other, answer: Answer::Cancelled });
                say(&Line::Answer { id, answer: Answer::Done });
            });
            return;
        }
        let child = Arc::clone(&self);
        let task = tokio::spawn(async move {
            let answer = child.act(ask).await.unwrap_or_else(|error| explain(&*error));
            lock(&child.tasks).remove(&id);
            say(&Line::Answer { id, answer });
        });
        lock(&self.tasks).insert(id, task);
    }

    async fn act(&self, ask: Ask) -> Result<Answer, Failure> {
        match ask {
            Ask::Connect { client, strategy, urls, limits } => self.connect(client, &strategy, urls, limits).await,
            Ask::Acquire { client, wanted, within, hold } => self.acquire(&client, &wanted, Some(within), hold).await,
            Ask::TryAcquire { client, wanted, hold } => self.acquire(&client, &wanted, None, hold).await,
            Ask::Probe { client, wanted, bound } => self.probe(&client, &wanted, bound).await,
            Ask::Cancel { .. } => unreachable!("it is done before a task is made"),
            Ask::Release { hold } => self.release(&hold).await,
            Ask::Drop { hold } => {
                let held = self.held(&hold)?;
                held.hold.releasing();
                drop(held.guard.lock().await.take());
                Ok(Answer::Done)
            }
            Ask::Extend { hold, ttl } => self.extend(&hold, ttl).await,
            Ask::Look { hold } => Ok(self.held(&hold)?.look()),
            Ask::Lost { hold } => {
                let held = self.held(&hold)?;
                let reason = held.watch.lost().await;
                held.hold.stopped();
                Ok(Answer::Lost { reason: format!("{reason:?}") })
            }
            Ask::Read { client, resource } => {
                let actor = self.client(&client)?.actor;
                Ok(Answer::Value { value: resource.read(&actor).await? })
            }
            Ask::Write { client, resource, value, hold, gate } => {
                let actor = self.client(&client)?.actor;
                self.write(&actor, &resource, value, hold.as_deref(), gate.as_deref()).await
            }
            Ask::Increment { client, resource, hold } => {
                let actor = self.client(&client)?.actor;
                let value = resource.read(&actor).await?;
                self.write(&actor, &resource, value + 1, hold.as_deref(), None).await
            }
            Ask::WriteHeld { resource, hold } => self.write_held(&resource, &hold).await,
            Ask::RawAcquire { client, wanted, claim } => self.raw_acquire(&client, &wanted, claim).await,
            Ask::RawRenew { claim, ttl } => self.claimed(&claim)?.renew(ttl).await,
            Ask::RawRelease { claim } => self.claimed(&claim)?.release().await,
            Ask::RawAbandon { claim } => {
                let claimed = self.claimed(&claim)?;
                let undone = claimed.backend.abandon(&claimed.claim).await?;
                Ok(Answer::Undone { settled: undone == lock_core::Undone::Settled })
            }
            Ask::Inspect { client, key } => {
                let backend = Arc::clone(self.client(&client)?.locks.backend());
                Ok(Answer::Holder { held: backend.inspect(&LockKey::new(&*key)?).await?.held })
            }
            Ask::ForceRelease { client, key } => {
                let backend = Arc::clone(self.client(&client)?.locks.backend());
                Ok(released(backend.force_release(&LockKey::new(&*key)?).await?))
            }
            Ask::Block { time } => {
                thread::sleep(time);
                Ok(Answer::Done)
            }
            Ask::Clocks => Ok(Answer::Clocks {
                realtime: nanos(ClockId::CLOCK_REALTIME),
                monotonic: nanos(ClockId::CLOCK_MONOTONIC),
                boottime: nanos(ClockId::CLOCK_BOOTTIME),
                lab: lab_now(),
            }),
        }
    }

    async fn connect(
        &self,
        name: String,
        strategy: &str,
        urls: Vec<String>,
        limits: Limits,
    ) -> Result<Answer, Failure> {
        let strategy = Strategy::known(strategy)?;
        let (memory, request_limit) = (self.memory.clone(), limits.request);
        let seat = Seat { urls, memory, request_limit, session: Some(limits.session), replicas: limits.replicas };
        let mut options = Options::new();
        if let Some(patience) = limits.unavailable_after {
            options = options.with_unavailable_after(patience);
        }
        let locks = Locks::with_options(strategy.backend(&seat).await?, options);
        let actor = self.history.actor(name.as_str());
        lock(&self.clients).insert(name, Client { locks, actor });
        Ok(Answer::Done)
    }

    async fn acquire(
        &self,
        client: &str,
        wanted: &Wanted,
        within: Option<Duration>,
        hold: String,
    ) -> Result<Answer, Failure> {
        let Client { locks, actor } = self.client(client)?;
        let lock = wanted.on(&locks)?;
        let attempt = match &wanted.owner {
            Some(owner) => actor.acquiring_for(wanted.key.as_str(), owner.as_str()),
            None => actor.acquiring(wanted.key.as_str()),
        };
        let granted = match within {
            Some(within) => lock.acquire_within(within).await.map(Some),
            None => lock.try_acquire().await,
        };
        match granted {
            Ok(Some(guard)) => {
                let (token, watch) = (guard.fencing_token(), guard.watch());
                let held = attempt.granted(token, guard.deadline());
                let remaining = guard.remaining();
                let held = Held { hold: held, watch, guard: tokio::sync::Mutex::new(Some(guard)) };
                self::lock(&self.holds).insert(hold, Arc::new(held));
                Ok(Answer::Granted { token: token.map(lock_core::FencingToken::value), remaining })
            }
            Ok(None) => {
                attempt.busy();
                Ok(Answer::Busy)
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                attempt.busy();
                Ok(Answer::error(&error))
            }
            Err(error) => {
                attempt.failed(error.effect());
                Ok(Answer::error(&error))
            }
        }
    }

    async fn probe(&self, client: &str, wanted: &Wanted, bound: Duration) -> Result<Answer, Failure> {
        let Client { locks, actor } = self.client(client)?;
        let lock = wanted.on(&locks)?;
        let probe = actor.probing(wanted.key.as_str(), bound);
        match lock.acquire_within(bound).await {
            Ok(guard) => {
                probe.succeeded();
                Ok(released(guard.release().await?))
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                probe.gave_up();
                Ok(Answer::error(&error))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn release(&self, hold: &str) -> Result<Answer, Failure> {
        let held = self.held(hold)?;
        let guard = held.guard.lock().await.take().ok_or("it has been released before")?;
        held.look();
        held.hold.releasing();
        match guard.release().await {
            Ok(answer) => {
                held.hold.released(answer);
                Ok(released(answer))
            }
            Err(error) => {
                held.hold.release_failed(error.effect());
                Ok(Answer::error(&error))
            }
        }
    }

    async fn extend(&self, hold: &str, ttl: Duration) -> Result<Answer, Failure> {
        let held = self.held(hold)?;
        let guard = held.guard.lock().await;
        let guard = guard.as_ref().ok_or("it has been released before")?;
        match guard.extend(ttl).await {
            Ok(()) => {
                held.hold.renewed(guard.deadline());
                Ok(Answer::Renewed { remaining: guard.remaining() })
            }
            Err(error) => Ok(Answer::error(&error)),
        }
    }

    async fn write(
        &self,
        actor: &Actor,
        resource: &Resource,
        value: u64,
        hold: Option<&str>,
        gate: Option<&str>,
    ) -> Result<Answer, Failure> {
        let token = match hold {
            Some(hold) => {
                let held = self.held(hold)?;
                let guard = held.guard.lock().await;
                guard.as_ref().and_then(LockGuard::fencing_token)
            }
            None => None,
        };
        while gate.is_some_and(|gate| !Path::new(gate).exists()) {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        let accepted = resource.write(actor, value, token).await?;
        Ok(if accepted { Answer::Done } else { Answer::Refused })
    }

    async fn write_held(&self, resource: &Resource, hold: &str) -> Result<Answer, Failure> {
        let held = self.held(hold)?;
        let token = held.guard.lock().await.as_ref().and_then(LockGuard::fencing_token);
        if held.look() == Answer::NotHeld {
            return Ok(Answer::NotHeld);
        }
        let accepted = resource.write_held(&held.hold, token).await?;
        Ok(if accepted { Answer::Done } else { Answer::Refused })
    }

    async fn raw_acquire(&self, client: &str, wanted: &Wanted, name: String) -> Result<Answer, Failure> {
        let Client { locks, actor } = self.client(client)?;
        let earlier = lock(&self.claims).get(&name).cloned();
        let claimed = match earlier {
            Some(claimed) => claimed,
            None => {
                let owner = wanted.owner()?.unwrap_or_else(Owner::random);
                let claim = Claim::new(LockKey::new(&*wanted.key)?, owner, wanted.lease());
                let backend = Arc::clone(locks.backend());
                let claimed = Claimed {
                    backend,
                    claim,
                    attempt: Mutex::default(),
                    grant: Mutex::default(),
                    hold: Mutex::default(),
                };
                Arc::clone(lock(&self.claims).entry(name).or_insert_with(|| Arc::new(claimed)))
            }
        };
        let undecided = lock(&claimed.attempt).take();
        let is_repeated = undecided.is_some();
        let attempt = undecided.unwrap_or_else(|| match &wanted.owner {
            Some(owner) => actor.acquiring_for(wanted.key.as_str(), owner.as_str()),
            None => actor.acquiring(wanted.key.as_str()),
        });
        match claimed.backend.try_acquire(&claimed.claim).await {
            Ok(Some(grant)) => {
                let (token, deadline) = (grant.fencing_token, deadline(grant.sent_at, grant.ttl));
                // The same claim again is the same hold.
                let mut hold = lock(&claimed.hold);
                match &*hold {
                    Some(hold) => {
                        attempt.busy();
                        hold.renewed(deadline);
                    }
                    None => *hold = Some(attempt.granted(token, deadline)),
                }
                *lock(&claimed.grant) = Some(grant);
                Ok(Answer::Granted {
                    token: token.map(lock_core::FencingToken::value),
                    remaining: deadline.remaining(),
                })
            }
            Ok(None) => {
                // What refuses a repeated claim may be its own entry.
                if is_repeated {
                    *lock(&claimed.attempt) = Some(attempt);
                } else {
                    attempt.busy();
                }
                Ok(Answer::Busy)
            }
            Err(error) => {
                if is_repeated || error.effect() == Effect::Unknown {
                    *lock(&claimed.attempt) = Some(attempt);
                } else {
                    attempt.failed(error.effect());
                }
                Ok(Answer::error(&error))
            }
        }
    }

    fn client(&self, name: &str) -> Result<Client, Failure> {
        lock(&self.clients).get(name).cloned().ok_or_else(|| format!("there is no client `{name}`").into())
    }

    fn held(&self, name: &str) -> Result<Arc<Held>, Failure> {
        lock(&self.holds).get(name).cloned().ok_or_else(|| format!("there is no hold `{name}`").into())
    }

    fn claimed(&self, name: &str) -> Result<Arc<Claimed>, Failure> {
        lock(&self.claims).get(name).cloned().ok_or_else(|| format!("there is no claim `{name}`").into())
    }
}

impl Wanted {
    fn on(&self, locks: &Locks) -> Result<Lock, Failure> {
        let lock = locks.lock(&self.key)?.lease(self.lease());
        Ok(match self.owner()? {
            Some(owner) => lock.owner(&owner),
            None => lock,
        })
    }

    fn owner(&self) -> Result<Option<Owner>, Failure> {
        let owner = self.owner.as_ref().map(|owner| owner.parse::<u128>()).transpose()?;
        Ok(owner.map(Owner::from_bits))
    }
}

impl Held {
    /// What the guard says, written down as something that is acted on.
    fn look(&self) -> Answer {
        if self.watch.is_held() {
            self.hold.affirmed(self.watch.deadline());
            Answer::Held { remaining: self.watch.remaining() }
        } else {
            self.hold.stopped();
            Answer::NotHeld
        }
    }
}

impl Claimed {
    async fn renew(&self, ttl: Duration) -> Result<Answer, Failure> {
        let grant = lock(&self.grant).clone().ok_or("this claim has no grant")?;
        let answers = self.backend.renew(&[Renew::new(&grant, ttl)]).await;
        let answer = answers.into_iter().next().ok_or("a renewal has no answer")?;
        let hold = lock(&self.hold);
        let hold = hold.as_ref().ok_or("this claim has no hold")?;
        Ok(match answer {
            Ok(renewal) => {
                let deadline = deadline(renewal.sent_at, renewal.ttl);
                hold.renewed(deadline);
                // There is no driver to know that it comes too late: what the backend says is acted on.
                hold.affirmed(deadline);
                Answer::Renewed { remaining: deadline.remaining() }
            }
            Err(error) => {
                if error.kind() == ErrorKind::Lost {
                    hold.renewal_lost();
                }
                Answer::error(&error)
            }
        })
    }

    async fn release(&self) -> Result<Answer, Failure> {
        let grant = lock(&self.grant).clone().ok_or("this claim has no grant")?;
        if let Some(hold) = &*lock(&self.hold) {
            hold.releasing();
        }
        let answer = self.backend.release(&grant).await;
        if let Some(hold) = &*lock(&self.hold) {
            match &answer {
                Ok(answer) => hold.released(*answer),
                Err(error) => hold.release_failed(error.effect()),
            }
        }
        Ok(match answer {
            Ok(answer) => released(answer),
            Err(error) => Answer::error(&error),
        })
    }
}

/// As the driver counts it: `docs/safety.md`.
fn deadline(sent_at: Moment, ttl: Duration) -> Moment {
    let drift = ttl / 100 + Duration::from_millis(2);
    sent_at.saturating_add(ttl.saturating_sub(drift))
}

const fn released(release: Release) -> Answer {
    match release {
        Release::Released => Answer::Released,
        Release::NotHeld => Answer::NotHeld,
    }
}

fn explain(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Answer {
    match error.downcast_ref::<lock_core::Error>() {
        Some(error) => Answer::error(error),
        None => Answer::Error { kind: "Lab".into(), without_effect: false, text: error.to_string() },
    }
}

/// The clock by which histories are written: the time that has passed for everybody. The preloaded shim moves it with the
/// common offset only.
fn lab_now() -> u64 {
    nanos(ClockId::CLOCK_MONOTONIC_RAW)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock.now().expect("Linux has had this clock since 2.6.39");
    u64::try_from(Duration::from(time).as_nanos()).expect("it lies before the year 2554")
}

fn say(line: &Line) {
    let mut text = serde_json::to_string(line).expect("a line has string keys and numbers that are numbers");
    text.push('\n');
    let mut out = stdout().lock();
    // Without a lab that listens there is nobody to tell.
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
