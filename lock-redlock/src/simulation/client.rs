//! A client: what `redlock.rs` and the driver do with a round, without tasks and sockets. Its rounds, limits, pauses and
//! deadlines are the crate's own.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_core::{Effect, Moment};
use lock_redis::Ttl;
use lock_testkit::simulation::{Clock, Nanos, nanos};

use super::Flaw;
use super::net::{Due, Event, Letter, Net, Stimulus};
use super::node::Request;
use crate::lease::valid_until;
use crate::round::{Answer, Question, Round, Verdict};

pub(super) struct Client {
    number: usize,
    pub(super) clock: Clock,
    flaw: Option<Flaw>,
    /// What its clock calls zero.
    origin: Moment,
    stopped_until: Nanos,
    claim: u64,
    next_question: u64,
    /// Those of which a call has not ended.
    questions: BTreeMap<u64, Asked>,
    doing: Doing,
    /// Grows whenever it turns to something else, so that what was put off before is void.
    turn: u64,
    /// From when until when it has acted under the lock, by the lab's time.
    pub(super) holds: Vec<(Nanos, Nanos)>,
}

#[derive(Debug)]
enum Doing {
    /// Wants nothing at present, or waits to ask again.
    Waiting,
    Asking,
    Holding(Hold),
    Done,
}

#[derive(Debug)]
struct Hold {
    since: Nanos,
    deadline: Moment,
    ttl: Duration,
    /// The longest ttl that the nodes were sent.
    longest: Duration,
    /// The question that won it.
    won_by: u64,
    is_renewing: bool,
}

/// A question to all nodes.
struct Asked {
    question: Question,
    round: Round,
    claim: u64,
    sent_at: Moment,
    ttl: Duration,
    /// For each node: none while its call has not ended.
    answers: Vec<Option<Answer>>,
    is_over: bool,
    is_decided: bool,
}

impl Client {
    pub(super) fn new(number: usize, flaw: Option<Flaw>, net: &mut Net) -> Self {
        let mut client = Self {
            number,
            clock: Clock::new(net.plan.clients[number].ppm),
            flaw,
            origin: Moment::now(),
            stopped_until: 0,
            claim: 0,
            next_question: 0,
            questions: BTreeMap::new(),
            doing: Doing::Waiting,
            turn: 0,
            holds: Vec::new(),
        };
        client.rest(net);
        client
    }

    /// Stops its process: what comes to it comes after that.
    pub(super) fn stop(&mut self, until: Nanos) {
        self.stopped_until = self.stopped_until.max(until);
    }

    pub(super) fn stopped_until(&self, now: Nanos) -> Option<Nanos> {
        (now < self.stopped_until).then_some(self.stopped_until)
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.doing, Doing::Done)
    }

    pub(super) fn act(&mut self, stimulus: Stimulus, net: &mut Net) {
        self.look_at_deadline(net);
        match stimulus {
            Stimulus::Answer { question, node, answer } => self.answered(question, node, answer, net),
            Stimulus::Limit { question } => {
                let now = self.now(net);
                if let Some(asked) = self.questions.get_mut(&question) {
                    asked.is_over = true;
                    asked.round.time_passed(now);
                    self.consider(question, net);
                }
            }
            Stimulus::GiveUp { question } => {
                for node in 0..net.plan.nodes.len() {
                    self.answered(question, node, Answer::Failed(Effect::Unknown), net);
                }
            }
            Stimulus::Due { turn, .. } if turn != self.turn => {}
            Stimulus::Due { what: Due::Ask, .. } => {
                if net.now >= net.plan.calm {
                    self.give_up(net);
                } else {
                    self.turn_to(Doing::Asking);
                    self.ask(Question::Acquire, net.plan.ttl, net.plan.ttl, net);
                }
            }
            Stimulus::Due { what: Due::Renew, .. } => self.renew(net),
            Stimulus::Due { what: Due::WorkDone, .. } => self.end_hold(net),
            // It has been looked at.
            Stimulus::Due { what: Due::Deadline, .. } => {}
        }
    }

    fn answered(&mut self, question: u64, node: usize, answer: Answer, net: &mut Net) {
        let now = self.now(net);
        let Some(asked) = self.questions.get_mut(&question) else { return };
        if asked.answers[node].is_some() {
            return;
        }
        asked.answers[node] = Some(answer);
        asked.round.answered(node, answer, now);
        self.consider(question, net);
    }

    /// Undoes what a question says must be undone, and acts on its verdict.
    fn consider(&mut self, question: u64, net: &mut Net) {
        let now = self.now(net);
        let Some(asked) = self.questions.get_mut(&question) else { return };
        let verdict = if self.flaw == Some(Flaw::QuorumOfAnswered) {
            asked.of_those_that_answered(now, self.flaw)
        } else {
            asked.round.verdict()
        };
        let is_flawed_win = verdict == Some(Verdict::Won) && asked.round.verdict() != verdict;
        let news = verdict.filter(|_| !std::mem::replace(&mut asked.is_decided, verdict.is_some()));
        self.undo(question, is_flawed_win, net);
        if let Some(verdict) = news {
            net.note(|| format!("client {}: question {question} is {verdict:?}", self.number));
            self.decided(question, verdict, net);
        }
        if self.questions.get(&question).is_some_and(|asked| asked.answers.iter().all(Option::is_some)) {
            self.questions.remove(&question);
        }
    }

    fn decided(&mut self, question: u64, verdict: Verdict, net: &mut Net) {
        let asked = &self.questions[&question];
        let is_ours = asked.claim == self.claim;
        match (asked.question, &mut self.doing, verdict) {
            (Question::Acquire, Doing::Asking, Verdict::Won) => {
                // As one that is fenced and gets no token.
                if net.rng.u8(..20) == 0 {
                    let asked = self.questions.get_mut(&question).expect("it is there");
                    asked.round.revoke();
                    self.undo(question, false, net);
                    self.ask_again(net.plan.ttl / 20, net);
                } else {
                    self.hold(question, net);
                }
            }
            (Question::Acquire, Doing::Asking, Verdict::Refused) => self.ask_again(net.plan.options.retry_delay(), net),
            (Question::Acquire, Doing::Asking, Verdict::TooLate | Verdict::Failed) => {
                self.ask_again(net.plan.ttl / 20, net);
            }
            (Question::Ours, Doing::Holding(hold), verdict) if is_ours && hold.is_renewing => {
                hold.is_renewing = false;
                match verdict {
                    Verdict::Won => self.renewed(question, net),
                    Verdict::Refused => self.end_hold(net),
                    Verdict::TooLate | Verdict::Failed => {
                        let pause = hold.ttl / 20;
                        self.put_off(pause, Due::Renew, net);
                    }
                }
            }
            // A late answer to something that is over.
            _ => {}
        }
    }

    fn hold(&mut self, won_by: u64, net: &mut Net) {
        let asked = &self.questions[&won_by];
        let deadline = self.deadline_of(asked, asked.ttl, net);
        let (sent_at, ttl) = (asked.sent_at, asked.ttl);
        net.note(|| format!("client {} holds until {:?} of its clock", self.number, self.reading(deadline)));
        let hold = Hold { since: net.now, deadline, ttl, longest: ttl, won_by, is_renewing: false };
        self.turn_to(Doing::Holding(hold));
        let work = net.plan.ttl.mul_f64(net.rng.f64() * 3.0);
        let left = Duration::from_nanos((net.plan.calm - net.now).max(0).unsigned_abs());
        self.put_off(work.min(left), Due::WorkDone, net);
        self.put_off_until(deadline, Due::Deadline, net);
        self.put_off_until(sent_at.saturating_add(ttl / 3), Due::Renew, net);
    }

    fn renew(&mut self, net: &mut Net) {
        let Doing::Holding(hold) = &mut self.doing else { return };
        if hold.is_renewing {
            return;
        }
        hold.is_renewing = true;
        if net.rng.u8(..6) == 0 {
            // As one that is extended.
            hold.ttl = net.plan.ttl.mul_f64(0.5 + net.rng.f64() * 1.5);
        }
        hold.longest = hold.longest.max(hold.ttl);
        let (ttl, longest) = (hold.ttl, hold.longest);
        self.ask(Question::Ours, ttl, longest, net);
    }

    fn renewed(&mut self, question: u64, net: &mut Net) {
        let asked = &self.questions[&question];
        let deadline = self.deadline_of(asked, asked.ttl, net);
        let next = asked.sent_at.saturating_add(asked.ttl / 3);
        let Doing::Holding(hold) = &mut self.doing else { return };
        hold.deadline = hold.deadline.max(deadline);
        let deadline = hold.deadline;
        net.note(|| format!("client {} holds until {:?} of its clock", self.number, self.reading(deadline)));
        self.put_off_until(deadline, Due::Deadline, net);
        self.put_off_until(next, Due::Renew, net);
    }

    /// Ends a hold whose deadline has passed.
    fn look_at_deadline(&mut self, net: &mut Net) {
        if let Doing::Holding(hold) = &self.doing
            && hold.deadline <= self.now(net)
        {
            self.end_hold(net);
        }
    }

    /// Gives the lock back, whether it is still ours or not.
    fn end_hold(&mut self, net: &mut Net) {
        let Doing::Holding(hold) = &self.doing else { return };
        let until = self.clock.when(self.reading(hold.deadline)).min(net.now);
        self.holds.push((hold.since, until));
        if let Some(asked) = self.questions.get_mut(&hold.won_by) {
            asked.round.give_back();
        }
        net.note(|| format!("client {} ends its hold", self.number));
        self.give_up(net);
    }

    /// Leaves nothing of its claim, and begins with another.
    fn give_up(&mut self, net: &mut Net) {
        for node in 0..net.plan.nodes.len() {
            let request = Request::Release { claim: self.claim(), round: None };
            net.send(node, Letter { client: self.number, request, question: None });
        }
        self.claim += 1;
        self.rest(net);
    }

    fn rest(&mut self, net: &mut Net) {
        if net.now >= net.plan.calm {
            self.turn_to(Doing::Done);
            return;
        }
        self.turn_to(Doing::Waiting);
        let pause = net.plan.ttl.mul_f64(net.rng.f64() / 2.0);
        self.put_off(pause, Due::Ask, net);
    }

    fn ask_again(&mut self, pause: Duration, net: &mut Net) {
        if net.rng.u8(..50) == 0 {
            self.give_up(net);
            return;
        }
        self.turn_to(Doing::Waiting);
        self.put_off(pause, Due::Ask, net);
    }

    /// Puts a question to all nodes: `ttl` is what its sender counts on, `sent` what the nodes are told.
    fn ask(&mut self, question: Question, ttl: Duration, sent: Duration, net: &mut Net) {
        let number = self.next_question;
        self.next_question += 1;
        let (sent_at, nodes) = (self.now(net), net.plan.nodes.len());
        let limit = sent_at.saturating_add(net.plan.options.node_limit(sent));
        let valid_until = match self.flaw {
            Some(Flaw::DeadlineFromReply) => None,
            Some(Flaw::NoDriftAllowance) => Some(sent_at.saturating_add(sent)),
            _ => Some(valid_until(&lease(sent), sent_at)),
        };
        let round = Round::new(question, nodes, limit, valid_until);
        let answers = vec![None; nodes];
        let claim = self.claim;
        let asked = Asked { question, round, claim, sent_at, ttl, answers, is_over: false, is_decided: false };
        self.questions.insert(number, asked);
        let claim = self.claim();
        let request = match question {
            Question::Acquire => Request::Acquire { claim, round: number, ttl: sent },
            Question::Ours => Request::Renew { claim, round: self.won_by(), ttl: sent },
        };
        for node in 0..nodes {
            net.send(node, Letter { client: self.number, request, question: Some(number) });
        }
        self.schedule(limit, Stimulus::Limit { question: number }, net);
        let over = sent_at.saturating_add(net.plan.request_limit);
        self.schedule(over, Stimulus::GiveUp { question: number }, net);
    }

    /// Sends what undoes a question's part, unless the flaw has it taken for won.
    fn undo(&mut self, question: u64, is_flawed_win: bool, net: &mut Net) {
        let Some(asked) = self.questions.get_mut(&question) else { return };
        while let Some(node) = asked.round.next_undo() {
            let claim = claim_of(self.number, asked.claim);
            if !is_flawed_win {
                let round = (self.flaw != Some(Flaw::UndoOfAnyRound)).then_some(question);
                let request = Request::Release { claim, round };
                net.send(node, Letter { client: self.number, request, question: None });
            }
        }
    }

    /// Until when the holder of a lease of `ttl` may act.
    fn deadline_of(&self, asked: &Asked, ttl: Duration, net: &Net) -> Moment {
        match self.flaw {
            Some(Flaw::DeadlineFromReply) => valid_until(&lease(ttl), self.now(net)),
            Some(Flaw::NoDriftAllowance) => asked.sent_at.saturating_add(ttl),
            _ => valid_until(&lease(ttl), asked.sent_at),
        }
    }

    /// The round that won what it holds.
    fn won_by(&self) -> u64 {
        match &self.doing {
            Doing::Holding(hold) => hold.won_by,
            Doing::Waiting | Doing::Asking | Doing::Done => 0,
        }
    }

    fn turn_to(&mut self, doing: Doing) {
        self.doing = doing;
        self.turn += 1;
    }

    fn put_off(&self, pause: Duration, what: Due, net: &mut Net) {
        self.put_off_until(self.now(net).saturating_add(pause), what, net);
    }

    fn put_off_until(&self, moment: Moment, what: Due, net: &mut Net) {
        self.schedule(moment, Stimulus::Due { turn: self.turn, what }, net);
    }

    fn schedule(&self, moment: Moment, stimulus: Stimulus, net: &mut Net) {
        net.schedule(self.clock.when(self.reading(moment)), Event::Client(self.number, stimulus));
    }

    fn claim(&self) -> u64 {
        claim_of(self.number, self.claim)
    }

    fn now(&self, net: &Net) -> Moment {
        self.origin.saturating_add(Duration::from_nanos(self.clock.reading(net.now).unsigned_abs()))
    }

    fn reading(&self, moment: Moment) -> Nanos {
        nanos(moment.saturating_duration_since(self.origin))
    }
}

impl Asked {
    /// The verdict of one that takes a majority of those that have answered for a majority.
    fn of_those_that_answered(&self, now: Moment, flaw: Option<Flaw>) -> Option<Verdict> {
        debug_assert_eq!(flaw, Some(Flaw::QuorumOfAnswered));
        let count = |wanted| self.answers.iter().filter(|answer| **answer == Some(wanted)).count();
        let (yes, no) = (count(Answer::Yes), count(Answer::No));
        if !self.is_over && self.answers.iter().any(Option::is_none) {
            return None;
        }
        Some(if valid_until(&lease(self.ttl), self.sent_at) <= now {
            Verdict::TooLate
        } else if yes > no {
            Verdict::Won
        } else if no > 0 {
            Verdict::Refused
        } else {
            Verdict::Failed
        })
    }
}

fn claim_of(client: usize, claim: u64) -> u64 {
    claim * 10 + client as u64
}

fn lease(ttl: Duration) -> Ttl {
    Ttl::new(ttl, "redlock", "simulated").expect("it is within the range")
}
