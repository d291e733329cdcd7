use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use lock_testkit::Process;
use lock_testkit::history::History;
use tokio::sync::oneshot;

use super::Setup;
use crate::Failure;
use crate::lab::protocol::{Answer, Ask, Asked, Line};
use crate::lab::{Lab, Slot};

/// The process and the lines between it and the lab.
pub(super) struct Link {
    pub(super) process: Process,
    input: Mutex<ChildStdin>,
    waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>,
    pub(super) history: History,
    next: AtomicU64,
}

impl Link {
    pub(super) fn start(lab: &Lab, slot: &Slot, setup: Setup, history: &History, name: &str) -> Result<Self, Failure> {
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

    pub(super) fn begin(&self, ask: Ask) -> Result<Pending, Failure> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        lock(&self.waiting).insert(id, sender);
        let mut line = serde_json::to_string(&Asked { id, ask })?;
        line.push('\n');
        lock(&self.input).write_all(line.as_bytes())?;
        Ok(Pending { id, answer })
    }

    pub(super) fn fresh_name(&self, kind: &str) -> String {
        format!("{kind}-{}", self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// An ask without an answer yet.
pub(crate) struct Pending {
    pub(super) id: u64,
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
    pub(super) fn done(self, what: &str) -> Result<(), Failure> {
        match self {
            Self::Done => Ok(()),
            other => Err(format!("a client {what}, and the answer is {other:?}").into()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
