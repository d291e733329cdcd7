//! Every order in which nodes can answer, against an oracle that tries every way in which it could go on.

use std::collections::HashMap;
use std::time::Duration;

use super::*;

/// What happens to a round. Nodes that never appear never answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Answered(usize, Answer),
    LimitReached,
    GivenBack,
    Revoked,
}

const ANSWERS: [Answer; 4] = [Answer::Yes, Answer::No, Answer::Failed(Effect::Unknown), Answer::Failed(Effect::None)];

/// One history of a round, played on the machine and judged by the oracle at each step.
#[derive(Clone)]
struct Game {
    question: Question,
    nodes: usize,
    /// The validity ends before the event of this number.
    valid_events: usize,
    start: Moment,
    history: Vec<Event>,
    machine: Round,
    undone: Vec<usize>,
}

impl Game {
    fn new(question: Question, nodes: usize, valid_events: usize) -> Self {
        let start = Moment::now();
        let end = at(start, valid_events).saturating_add(Duration::from_micros(500));
        // The machine does not look at the limit before it is told that time has passed.
        let machine = Round::new(question, nodes, start, Some(end));
        Self { question, nodes, valid_events, start, history: Vec::new(), machine, undone: Vec::new() }
    }

    fn after(&self, event: Event) -> Self {
        let mut next = self.clone();
        next.history.push(event);
        let now = at(self.start, next.history.len());
        match event {
            Event::Answered(node, answer) => next.machine.answered(node, answer, now),
            Event::LimitReached => next.machine.time_passed(now),
            Event::GivenBack => next.machine.give_back(),
            Event::Revoked => next.machine.revoke(),
        }
        next.undone.extend(std::iter::from_fn(|| next.machine.next_undo()));
        next
    }

    fn check(&self, oracle: &mut Oracle) {
        let (verdict, mut undone) = oracle.judge(self);
        assert_eq!(self.machine.verdict(), verdict, "{:?} {} {:?}", self.question, self.nodes, self.history);
        undone.sort_unstable();
        let mut found = self.undone.clone();
        found.sort_unstable();
        assert_eq!(found, undone, "{:?} {} {:?}", self.question, self.nodes, self.history);
    }

    fn has_answered(&self, node: usize) -> bool {
        self.history.iter().any(|event| matches!(event, Event::Answered(other, _) if *other == node))
    }
}

fn at(start: Moment, event: usize) -> Moment {
    start.saturating_add(Duration::from_millis(event as u64))
}

/// Says what a history comes to, from the definitions alone: a verdict falls at the first event after which every way to go
/// on gives the same one.
#[derive(Default)]
struct Oracle {
    known: HashMap<(bool, usize, usize, usize, usize), Option<Verdict>>,
}

impl Oracle {
    fn judge(&mut self, game: &Game) -> (Option<Verdict>, Vec<usize>) {
        let mut votes: Vec<Option<Answer>> = vec![None; game.nodes];
        let mut limit_reached = false;
        let mut verdict = None;
        let mut unwanted = false;
        let mut undone = Vec::new();
        for (number, event) in game.history.iter().enumerate() {
            let mut candidates = Vec::new();
            match *event {
                Event::Answered(node, answer) => {
                    votes[node] = Some(answer);
                    candidates.push(node);
                }
                Event::LimitReached => limit_reached = true,
                Event::GivenBack => unwanted = true,
                Event::Revoked => {
                    unwanted = true;
                    candidates.extend(0..game.nodes);
                }
            }
            if verdict.is_none() {
                verdict = self.certain(game.question, &votes, limit_reached);
                if verdict == Some(Verdict::Won) && number + 1 > game.valid_events {
                    verdict = Some(Verdict::TooLate);
                }
                if verdict.is_some_and(|verdict| verdict != Verdict::Won) {
                    unwanted = true;
                    candidates = (0..game.nodes).collect();
                }
            }
            if unwanted && game.question == Question::Acquire {
                let may_hold =
                    |node: &usize| matches!(votes[*node], Some(Answer::Yes | Answer::Failed(Effect::Unknown)));
                undone.extend(candidates.into_iter().filter(may_hold));
            }
        }
        (verdict, undone)
    }

    fn certain(&mut self, question: Question, votes: &[Option<Answer>], limit_reached: bool) -> Option<Verdict> {
        let count = |wanted: Answer| votes.iter().filter(|vote| **vote == Some(wanted)).count();
        let (yes, no) = (count(Answer::Yes), count(Answer::No));
        let awaited = if limit_reached { 0 } else { votes.iter().filter(|vote| vote.is_none()).count() };
        let nodes = votes.len();
        *self.known.entry((question == Question::Acquire, nodes, yes, no, awaited)).or_insert_with(|| {
            let mut outcomes = Vec::new();
            complete(question, nodes, yes, no, awaited, &mut outcomes);
            outcomes.dedup();
            (outcomes.iter().all(|outcome| *outcome == outcomes[0])).then(|| outcomes[0])
        })
    }
}

/// Every way in which the awaited nodes can end: yes, no, or neither.
fn complete(question: Question, nodes: usize, yes: usize, no: usize, awaited: usize, outcomes: &mut Vec<Verdict>) {
    if awaited == 0 {
        outcomes.push(if 2 * yes > nodes {
            Verdict::Won
        } else if match question {
            // A majority is there, and does not agree.
            Question::Acquire => 2 * (yes + no) > nodes,
            // Were all others yes, it would still be no majority.
            Question::Ours => 2 * (nodes - no) <= nodes,
        } {
            Verdict::Refused
        } else {
            Verdict::Failed
        });
        return;
    }
    complete(question, nodes, yes + 1, no, awaited - 1, outcomes);
    complete(question, nodes, yes, no + 1, awaited - 1, outcomes);
    complete(question, nodes, yes, no, awaited - 1, outcomes);
}

/// Plays every continuation. With `in_turn` node 0 answers first, then node 1, and so on: nodes differ in nothing, so every
/// other order is one of these with other names.
fn explore(game: &Game, oracle: &mut Oracle, in_turn: bool, with_returns: bool) -> u64 {
    game.check(oracle);
    let mut games = 1;
    let mut go_on = |event| games += explore(&game.after(event), oracle, in_turn, with_returns);
    let mut awaited = (0..game.nodes).filter(|&node| !game.has_answered(node));
    let next: Vec<_> = if in_turn { awaited.next().into_iter().collect() } else { awaited.collect() };
    for node in next {
        // Errors differ only in what is undone, which five nodes show as well as seven.
        let differing = if game.question == Question::Acquire && game.nodes <= 5 { 4 } else { 3 };
        for &answer in &ANSWERS[..differing] {
            go_on(Event::Answered(node, answer));
        }
    }
    if !game.history.contains(&Event::LimitReached) {
        go_on(Event::LimitReached);
    }
    let returned = game.history.iter().any(|event| matches!(event, Event::GivenBack | Event::Revoked));
    if with_returns && !returned && game.machine.verdict() == Some(Verdict::Won) {
        go_on(Event::GivenBack);
        go_on(Event::Revoked);
    }
    games
}

const ALWAYS_VALID: usize = 100;

#[test]
fn every_order_of_yes_no_error_and_silence_from_1_to_7_nodes_is_judged_as_by_brute_force() {
    let mut oracle = Oracle::default();
    for question in [Question::Acquire, Question::Ours] {
        for nodes in 1..=7 {
            let games = explore(&Game::new(question, nodes, ALWAYS_VALID), &mut oracle, true, false);
            assert!(games >= 3_u64.pow(u32::try_from(nodes).unwrap()), "{games} games of {nodes} nodes");
        }
    }
}

#[test]
fn the_names_of_the_nodes_do_not_matter() {
    let mut oracle = Oracle::default();
    for question in [Question::Acquire, Question::Ours] {
        for nodes in 1..=4 {
            explore(&Game::new(question, nodes, ALWAYS_VALID), &mut oracle, false, true);
        }
    }
}

#[test]
fn what_is_given_back_or_revoked_at_any_moment_is_undone_and_nothing_else() {
    let mut oracle = Oracle::default();
    for nodes in 1..=5 {
        explore(&Game::new(Question::Acquire, nodes, ALWAYS_VALID), &mut oracle, true, true);
    }
}

#[test]
fn a_majority_that_comes_after_the_validity_never_wins() {
    let mut oracle = Oracle::default();
    for question in [Question::Acquire, Question::Ours] {
        for nodes in 1..=5 {
            for valid_events in 0..=nodes + 1 {
                explore(&Game::new(question, nodes, valid_events), &mut oracle, true, false);
            }
        }
    }
}

#[test]
fn time_that_has_not_come_yet_decides_nothing() {
    let start = Moment::now();
    let mut round = Round::new(Question::Acquire, 3, at(start, 10), None);
    round.answered(0, Answer::Yes, start);
    round.time_passed(at(start, 9));
    assert_eq!(round.verdict(), None);
    round.time_passed(at(start, 10));
    assert_eq!(round.verdict(), Some(Verdict::Failed));
    assert_eq!(round.next_undo(), Some(0));
}

#[test]
fn a_majority_is_more_than_half() {
    assert_eq!([1, 2, 3, 4, 5, 6, 7].map(majority), [1, 2, 2, 3, 3, 4, 4]);
}
