//! The other side of a contender: the process that holds locks. It reads what it is asked to do line by line, does each thing
//! on a task of its own, and writes down at once what happens and what it answers.

mod claimed;
mod held;

use std::collections::HashMap;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lock_core::{Lock, LockKey, Locks, Options, Owner, Release};
use lock_memory::Memory;
use lock_testkit::history::{Actor, History};
use nix::time::ClockId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::claimed::Claimed;
use self::held::Held;
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
            Ask::Release { hold } => self.held(&hold)?.release().await,
            Ask::Drop { hold } => Ok(self.held(&hold)?.drop_guard().await),
            Ask::Extend { hold, ttl } => self.held(&hold)?.extend(ttl).await,
            Ask::Look { hold } => Ok(self.held(&hold)?.look()),
            Ask::Lost { hold } => Ok(self.held(&hold)?.lost().await),
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
            Ask::WriteHeld { resource, hold } => self.held(&hold)?.write(&resource).await,
            Ask::RawAcquire { client, wanted, claim } => self.raw_acquire(&client, &wanted, claim).await,
            Ask::RawRenew { claim, ttl } => self.claimed(&claim)?.renew(ttl).await,
            Ask::RawRelease { claim } => self.claimed(&claim)?.release().await,
            Ask::RawAbandon { claim } => self.claimed(&claim)?.abandon().await,
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

    async fn write(
        &self,
        actor: &Actor,
        resource: &Resource,
        value: u64,
        hold: Option<&str>,
        gate: Option<&str>,
    ) -> Result<Answer, Failure> {
        let token = match hold {
            Some(hold) => self.held(hold)?.token().await,
            None => None,
        };
        while gate.is_some_and(|gate| !Path::new(gate).exists()) {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        let accepted = resource.write(actor, value, token).await?;
        Ok(if accepted { Answer::Done } else { Answer::Refused })
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
