use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;
use lock_core::Effect;
use lock_testkit::simulation::{Nanos, show};

use super::node::Request;
use super::plan::{Fault, Plan};
use crate::round::Answer;

/// What lies between the clients and the nodes, and what is still to come.
#[derive(Debug)]
pub(super) struct Net {
    pub(super) plan: Plan,
    pub(super) now: Nanos,
    pub(super) rng: Rng,
    /// All that have come up, in that order.
    events: Vec<Event>,
    /// Those that are still to come: by time, and those of one time in the order in which they came up.
    due: BinaryHeap<Reverse<(Nanos, usize)>>,
    trace: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Fault(Fault),
    /// A request arrives at a node.
    Request {
        node: usize,
        letter: Letter,
    },
    /// Something comes to a client.
    Client(usize, Stimulus),
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letter {
    pub(super) client: usize,
    pub(super) request: Request,
    /// The question that it belongs to, if anybody waits for the answer.
    pub(super) question: Option<u64>,
}

/// What makes a client act.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stimulus {
    /// A node's call has ended.
    Answer { question: u64, node: usize, answer: Answer },
    /// The limit of a question is over.
    Limit { question: u64 },
    /// Calls of a question that have not been answered end.
    GiveUp { question: u64 },
    /// Something that was put off; void if the client has turned to something else since `turn`.
    Due { turn: u64, what: Due },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Ask,
    Renew,
    WorkDone,
    Deadline,
}

impl Net {
    pub(super) fn new(plan: Plan, rng: Rng, traced: bool) -> Self {
        let trace = traced.then(|| vec![format!("{plan:?}")]);
        let mut net = Self { plan, now: 0, rng, events: Vec::new(), due: BinaryHeap::new(), trace };
        for (at, fault) in std::mem::take(&mut net.plan.faults) {
            net.schedule(at, Event::Fault(fault));
        }
        net
    }

    /// The next event, whose time it is then.
    pub(super) fn next(&mut self) -> Option<Event> {
        let Reverse((at, event)) = self.due.pop()?;
        self.now = at;
        Some(self.events[event])
    }

    pub(super) fn schedule(&mut self, at: Nanos, event: Event) {
        self.due.push(Reverse((at.max(self.now), self.events.len())));
        self.events.push(event);
    }

    pub(super) fn send(&mut self, node: usize, letter: Letter) {
        self.note(|| format!("client {} asks node {node}: {:?}", letter.client, letter.request));
        if self.happens(self.plan.network.refused) {
            self.answer(node, letter, Answer::Failed(Effect::None));
            return;
        }
        if self.happens(self.plan.network.doubled) {
            let at = self.now + self.rng.i64(self.plan.network.long_delay.clone());
            self.schedule(at, Event::Request { node, letter: Letter { question: None, ..letter } });
        }
        if self.passes(node, letter) {
            let at = self.arrival(letter.client);
            self.schedule(at, Event::Request { node, letter });
        }
    }

    /// A node's answer sets out.
    pub(super) fn answer(&mut self, node: usize, letter: Letter, answer: Answer) {
        if let Some(question) = letter.question
            && self.passes(node, letter)
        {
            let at = self.arrival(letter.client);
            self.schedule(at, Event::Client(letter.client, Stimulus::Answer { question, node, answer }));
        }
    }

    pub(super) fn note(&mut self, note: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{} {}", show(self.now), note()));
        }
    }

    pub(super) fn into_trace(self) -> Vec<String> {
        self.trace.unwrap_or_default()
    }

    fn passes(&mut self, node: usize, letter: Letter) -> bool {
        let blackouts = &self.plan.clients[letter.client].blackouts;
        let is_renewal = matches!(letter.request, Request::Renew { .. });
        let dark = self.now < self.plan.calm
            && blackouts.iter().any(|blackout| {
                blackout.time.contains(&self.now)
                    && blackout.nodes >> node & 1 == 1
                    && (is_renewal || !blackout.of_renewals)
            });
        let lost = dark || self.happens(self.plan.network.lost);
        if lost {
            self.note(|| format!("lost between client {} and node {node}: {:?}", letter.client, letter.request));
        }
        !lost
    }

    fn arrival(&mut self, client: usize) -> Nanos {
        let delayed = self.happens(self.plan.network.delayed);
        let delay = if delayed { &self.plan.network.long_delay } else { &self.plan.clients[client].delay };
        self.now + self.rng.i64(delay.clone())
    }

    fn happens(&mut self, chance: f64) -> bool {
        self.now < self.plan.calm && self.rng.f64() < chance
    }
}
