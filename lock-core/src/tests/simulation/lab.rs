//! What happens between the actors and the store, in the order of the lab's time.
//!
//! An actor runs ahead of the others until it sends something, because nothing but the answers to its own requests can reach
//! it. An event is handled when no actor is behind it.

use std::collections::{BTreeMap, HashMap};

use fastrand::Rng;
use lock_testkit::simulation::{Clock, Hold, Nanos, Report, show};
use tokio::sync::oneshot;

use super::Flaw;
use super::actor::Actor;
use super::link::Letter;
use super::plan::{Fault, Plan};
use super::store::{Answer, Op, Request, Store};
use crate::ClaimId;

pub(super) struct Lab {
    plan: Plan,
    rng: Rng,
    actors: Vec<Actor>,
    store: Store,
    /// Until when the store is away.
    away: Nanos,
    /// By time; those of one time in the order in which they came up.
    events: BTreeMap<(Nanos, u64), Event>,
    next_event: u64,
    claims: HashMap<ClaimId, u32>,
    trace: Option<Vec<(Nanos, String)>>,
}

#[derive(Debug)]
enum Event {
    Fault(Fault),
    Request {
        actor: usize,
        request: Request,
        /// None for a copy, whose answer nobody reads.
        reply: Option<oneshot::Sender<Answer>>,
    },
    Reply {
        actor: usize,
        request: Request,
        answer: Answer,
        reply: oneshot::Sender<Answer>,
    },
}

impl Lab {
    pub(super) fn new(seed: u64, flaw: Option<Flaw>, traced: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        // The driver's own jitter.
        fastrand::seed(rng.u64(..));
        let plan = Plan::draw(&mut rng, flaw);
        let actors = (0..plan.actors.len()).map(|number| Actor::new(&plan, number, &mut rng, flaw, traced)).collect();
        let mut lab = Self {
            actors,
            store: Store::new(Clock::new(plan.store_ppm), flaw == Some(Flaw::LateRequestShortens)),
            rng,
            away: 0,
            events: BTreeMap::new(),
            next_event: 0,
            claims: HashMap::new(),
            trace: traced.then(|| vec![(0, format!("{plan:?}"))]),
            plan,
        };
        for (at, fault) in std::mem::take(&mut lab.plan.faults) {
            lab.schedule(at, Event::Fault(fault));
        }
        lab
    }

    pub(super) fn run(mut self) -> Report {
        loop {
            let next = self.events.keys().next().map_or(self.plan.end, |(at, _)| *at);
            if let Some(behind) = self.actors.iter().position(|actor| actor.now() < next) {
                self.run_actor(behind);
            } else if let Some(((at, _), event)) = self.events.pop_first() {
                self.handle(at, event);
            } else {
                return self.end();
            }
        }
    }

    fn run_actor(&mut self, number: usize) {
        let mut own = self.events.iter().filter(|(_, event)| event.reaches(number)).map(|((at, _), _)| *at);
        let until = own.next().unwrap_or(self.plan.end);
        let letters = self.actors[number].run(until);
        if let Some(trace) = &mut self.trace {
            let notes = self.actors[number].notes().into_iter();
            trace.extend(notes.map(|(at, note)| (at, format!("actor {number} {note}"))));
        }
        let now = self.actors[number].now();
        for letter in letters {
            self.send(number, now, letter);
        }
    }

    fn send(&mut self, actor: usize, now: Nanos, letter: Letter) {
        let next = u32::try_from(self.claims.len()).expect("a run has few claims");
        let claim = *self.claims.entry(letter.claim).or_insert(next);
        let request = Request { op: letter.op, claim, ttl: letter.ttl };
        self.note(now, || format!("actor {actor} sends {request:?}"));
        let reply = letter.reply;
        if self.happens(now, self.plan.network.refused) {
            let delay = self.delay(actor, now);
            self.schedule(now + delay, Event::Reply { actor, request, answer: Answer::Refused, reply });
            return;
        }
        if self.happens(now, self.plan.network.doubled) {
            let delay = self.rng.i64(self.plan.network.long_delay.clone());
            self.schedule(now + delay, Event::Request { actor, request, reply: None });
        }
        if self.passes(actor, now, request) {
            let delay = self.delay(actor, now);
            self.schedule(now + delay, Event::Request { actor, request, reply: Some(reply) });
        }
    }

    fn handle(&mut self, at: Nanos, event: Event) {
        match event {
            Event::Fault(fault) => self.fault(at, fault),
            Event::Request { actor, request, .. } if at < self.away => {
                self.note(at, || format!("lost, for the store is away: {request:?} of actor {actor}"));
            }
            Event::Request { actor, request, reply } => {
                let answer = self.store.apply(at, request);
                self.note(at, || format!("store: {request:?} of actor {actor}: {answer:?}"));
                if let Some(reply) = reply
                    && self.passes(actor, at, request)
                {
                    let delay = self.delay(actor, at);
                    self.schedule(at + delay, Event::Reply { actor, request, answer, reply });
                }
            }
            Event::Reply { actor, request, answer, reply } => {
                let late = reply.send(answer).is_err();
                self.note(at, || {
                    let late = if late { ", too late" } else { "" };
                    format!("actor {actor} is told {answer:?} of {request:?}{late}")
                });
            }
        }
    }

    fn fault(&mut self, at: Nanos, fault: Fault) {
        self.note(at, || format!("{fault:?}"));
        match fault {
            Fault::Stop { actor, during } => self.actors[actor].stop(during),
            Fault::Suspend { actor, during } => self.actors[actor].suspend(during),
            Fault::Jump { actor, by } => self.actors[actor].jump(by),
            Fault::Away { during } => self.away = self.away.max(at + during),
            Fault::Forget => self.store.forget(),
            Fault::StoreJump { by } => self.store.clock.step(at, by),
        }
    }

    /// Whether a message gets through.
    fn passes(&mut self, actor: usize, now: Nanos, request: Request) -> bool {
        let blackouts = &self.plan.actors[actor].blackouts;
        let dark = blackouts.iter().any(|blackout| {
            blackout.time.contains(&now.min(self.plan.calm)) && (!blackout.of_renewals || request.op == Op::Renew)
        });
        let lost = dark || self.happens(now, self.plan.network.lost);
        if lost {
            self.note(now, || format!("lost: {request:?} of actor {actor}, or its reply"));
        }
        !lost
    }

    fn delay(&mut self, actor: usize, now: Nanos) -> Nanos {
        let delayed = self.happens(now, self.plan.network.delayed);
        let delay = if delayed { &self.plan.network.long_delay } else { &self.plan.actors[actor].delay };
        self.rng.i64(delay.clone())
    }

    fn happens(&mut self, now: Nanos, chance: f64) -> bool {
        now < self.plan.calm && self.rng.f64() < chance
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        self.events.insert((at, self.next_event), event);
        self.next_event += 1;
    }

    fn note(&mut self, at: Nanos, note: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push((at, note()));
        }
    }

    fn end(self) -> Report {
        let mut report = Report::default();
        if !self.store.is_free(self.plan.end) {
            report.faults.push("the store still keeps the lock at the end".to_owned());
        }
        let mut holds = Vec::new();
        for (holder, actor) in self.actors.into_iter().enumerate() {
            holds.extend(actor.end(&mut report).into_iter().map(|(from, until)| Hold { from, until, holder }));
        }
        report.judge("actor", holds);
        let mut trace = self.trace.unwrap_or_default();
        trace.sort_by_key(|(at, _)| *at);
        report.trace = trace.into_iter().map(|(at, note)| format!("{} {note}", show(at))).collect();
        report
    }
}

impl Event {
    /// Whether it, or what becomes of it, reaches the actor.
    fn reaches(&self, number: usize) -> bool {
        match self {
            Self::Fault(Fault::Stop { actor, .. } | Fault::Suspend { actor, .. } | Fault::Jump { actor, .. })
            | Self::Request { actor, reply: Some(_), .. }
            | Self::Reply { actor, .. } => *actor == number,
            Self::Fault(_) | Self::Request { reply: None, .. } => false,
        }
    }
}
