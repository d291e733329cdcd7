//! Puts a round's question to the nodes: all at once, until the verdict. What has not answered by then is left to the caller,
//! who has it run to its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use lock_core::{Error, Moment, Result};
use tokio::time::sleep;

use crate::round::{Answer, Round, Verdict};

/// The calls to the nodes of one round that have not ended.
pub(crate) type Calls<T> = FuturesUnordered<BoxFuture<'static, (usize, Result<T>)>>;

/// A round that its grant and its stragglers share.
#[derive(Clone, Debug)]
pub(crate) struct SharedRound(Arc<Mutex<Round>>);

impl SharedRound {
    pub(crate) fn new(round: Round) -> Self {
        Self(Arc::new(Mutex::new(round)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Round> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was known when the verdict fell.
#[derive(Debug)]
pub(crate) struct Tally<T> {
    pub(crate) verdict: Verdict,
    /// What came with each yes.
    pub(crate) yes: Vec<T>,
    pub(crate) no: usize,
    pub(crate) failures: Vec<Error>,
}

/// Waits for the verdict: until the round's limit at the latest.
pub(crate) async fn ask<T>(round: &SharedRound, calls: &mut Calls<Option<T>>) -> Tally<T> {
    let (mut yes, mut no, mut failures) = (Vec::new(), 0, Vec::new());
    let over = sleep(round.lock().limit().remaining());
    tokio::pin!(over);
    loop {
        if let Some(verdict) = round.lock().verdict() {
            return Tally { verdict, yes, no, failures };
        }
        tokio::select! {
            biased;
            Some((node, answer)) = calls.next() => {
                round.lock().answered(node, vote(&answer), Moment::now());
                match answer {
                    Ok(Some(said)) => yes.push(said),
                    Ok(None) => no += 1,
                    Err(error) => failures.push(error),
                }
            }
            () = &mut over => round.lock().time_passed(Moment::now()),
        }
    }
}

/// Takes the late answers of a round, and undoes what must be undone.
pub(crate) async fn settle<T>(
    round: SharedRound,
    mut calls: Calls<Option<T>>,
    undo: impl Fn(usize) -> BoxFuture<'static, ()> + Send,
) {
    let mut undoing = FuturesUnordered::new();
    loop {
        while let Some(node) = round.lock().next_undo() {
            undoing.push(undo(node));
        }
        tokio::select! {
            Some((node, answer)) = calls.next() => round.lock().answered(node, vote(&answer), Moment::now()),
            Some(()) = undoing.next() => {}
            else => return,
        }
    }
}

/// What one node says of each item of a batch.
type Answers = Vec<Result<Option<()>>>;

/// Waits for the verdict of each round: the question goes to each node as one batch, with an item for each round.
pub(crate) async fn ask_batch(mut rounds: Vec<Round>, calls: &mut Calls<Answers>) -> Vec<Tally<()>> {
    let mut tallies: Vec<_> = rounds.iter().map(|_| (Vec::new(), 0, Vec::new())).collect();
    while let Some(limit) = rounds.iter().filter(|round| round.verdict().is_none()).map(Round::limit).min() {
        tokio::select! {
            biased;
            Some((node, answers)) = calls.next() => {
                let now = Moment::now();
                let answers = answers.unwrap_or_else(|error| vec![Err(error); rounds.len()]);
                for ((round, (yes, no, failures)), answer) in rounds.iter_mut().zip(&mut tallies).zip(answers) {
                    round.answered(node, vote(&answer), now);
                    match answer {
                        Ok(Some(())) => yes.push(()),
                        Ok(None) => *no += 1,
                        Err(error) => failures.push(error),
                    }
                }
            }
            () = sleep(limit.remaining()) => {
                let now = Moment::now();
                rounds.iter_mut().for_each(|round| round.time_passed(now));
            }
        }
    }
    let tally = |(round, (yes, no, failures)): (Round, _)| {
        let verdict = round.verdict().expect("the loop ends when each has one");
        Tally { verdict, yes, no, failures }
    };
    rounds.into_iter().zip(tallies).map(tally).collect()
}

/// Gathers what the nodes say until all have answered or `limit` is over.
pub(crate) async fn gather<T>(limit: Moment, calls: &mut Calls<T>) -> Vec<Result<T>> {
    let mut answers = Vec::new();
    let over = sleep(limit.remaining());
    tokio::pin!(over);
    loop {
        tokio::select! {
            biased;
            call = calls.next() => match call {
                Some((_, answer)) => answers.push(answer),
                None => return answers,
            },
            () = &mut over => return answers,
        }
    }
}

/// Runs calls to their end for nothing but what they do to their nodes.
pub(crate) async fn run_out<T>(mut calls: Calls<T>) {
    while calls.next().await.is_some() {}
}

fn vote<T>(answer: &Result<Option<T>>) -> Answer {
    match answer {
        Ok(Some(_)) => Answer::Yes,
        Ok(None) => Answer::No,
        Err(error) => Answer::Failed(error.effect()),
    }
}
