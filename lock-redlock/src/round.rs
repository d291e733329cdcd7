//! One question to all nodes, and what their answers come to. No I/O and no clock: answers and time come in as arguments,
//! the verdict and what must be undone go out.
//!
//! The rules are those of redis.io, "Distributed Locks with Redis", section "The Redlock algorithm". What they leave open is
//! decided so: a verdict is given as soon as no answer that is still awaited could change it.

use std::collections::VecDeque;

use lock_core::{Effect, Moment};

/// What the nodes are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// To give the lock to this claim. A lost round is undone wherever it may have had an effect.
    Acquire,
    /// To do something with a lock that is this claim's: renew, mint, release. Nothing is ever undone, because what one node
    /// could not do takes nothing from what the others still hold.
    Ours,
}

/// What one node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
    /// No answer will come any more; whether the request may have had an effect.
    Failed(Effect),
}

/// What a round comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A majority said yes, in time.
    Won,
    /// A majority said yes, and the lease that they gave had run out by then.
    TooLate,
    /// The nodes are there, and say no. Acquiring: a majority answered, and not all with yes. Else: so many said no that a
    /// majority cannot be ours.
    Refused,
    /// Too few nodes answered to tell.
    Failed,
}

/// A round in progress, or decided and still taking late answers.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    question: Question,
    nodes: Vec<Node>,
    limit: Moment,
    /// Until when a majority of yes is worth something.
    valid_until: Option<Moment>,
    verdict: Option<Verdict>,
    /// Whether the grant of a round that was won is not wanted any more.
    given_back: bool,
    undo: VecDeque<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Awaited,
    /// No answer within the limit; one may still come.
    Silent,
    Answered(Answer),
}

impl Round {
    /// A round whose question is about to be sent to `nodes` nodes, who may take until `limit`.
    pub(crate) fn new(question: Question, nodes: usize, limit: Moment, valid_until: Option<Moment>) -> Self {
        Self {
            question,
            nodes: vec![Node::Awaited; nodes],
            limit,
            valid_until,
            verdict: None,
            given_back: false,
            undo: VecDeque::new(),
        }
    }

    /// What has been decided, if it has.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// Until when the nodes may take.
    pub(crate) fn limit(&self) -> Moment {
        self.limit
    }

    /// The next node whose part in this round must be undone. Each comes once, after its own call has ended, so that the
    /// undoing does not overtake what it undoes.
    pub(crate) fn next_undo(&mut self) -> Option<usize> {
        self.undo.pop_front()
    }

    /// Whether anything must be undone now.
    pub(crate) fn has_undo(&self) -> bool {
        !self.undo.is_empty()
    }

    /// A node's call has ended, perhaps long after the verdict.
    pub(crate) fn answered(&mut self, node: usize, answer: Answer, now: Moment) {
        debug_assert!(!matches!(self.nodes[node], Node::Answered(_)), "one call has one end");
        self.nodes[node] = Node::Answered(answer);
        if self.verdict.is_none() {
            self.decide(now);
        } else if self.is_lost() {
            self.undo_at(node);
        }
    }

    /// Time has passed: at the limit those who have not answered count as failed.
    pub(crate) fn time_passed(&mut self, now: Moment) {
        if now < self.limit || self.verdict.is_some() {
            return;
        }
        for node in &mut self.nodes {
            if *node == Node::Awaited {
                *node = Node::Silent;
            }
        }
        self.decide(now);
    }

    /// The grant of a round that was won has been given back by other means: only what comes from now on is undone here.
    pub(crate) fn give_back(&mut self) {
        self.given_back = true;
    }

    /// The grant of a round that was won is not handed out after all: all of it is undone.
    pub(crate) fn revoke(&mut self) {
        if !self.is_lost() {
            self.given_back = true;
            self.undo_all();
        }
    }

    fn decide(&mut self, now: Moment) {
        let Some(verdict) = self.certain() else { return };
        let expired = self.valid_until.is_some_and(|end| end <= now);
        self.verdict = Some(if verdict == Verdict::Won && expired { Verdict::TooLate } else { verdict });
        if self.is_lost() {
            self.undo_all();
        }
    }

    /// The verdict that no answer still awaited could change.
    fn certain(&self) -> Option<Verdict> {
        let count = |wanted: fn(&Node) -> bool| self.nodes.iter().filter(|node| wanted(node)).count();
        let yes = count(|node| *node == Node::Answered(Answer::Yes));
        let no = count(|node| *node == Node::Answered(Answer::No));
        let awaited = count(|node| *node == Node::Awaited);
        let majority = majority(self.nodes.len());
        if yes >= majority {
            return Some(Verdict::Won);
        }
        if yes + awaited >= majority {
            return None;
        }
        // It is lost; the rest is why.
        let (so_far, enough) = match self.question {
            Question::Acquire => (yes + no, majority),
            Question::Ours => (no, self.nodes.len() - majority + 1),
        };
        if so_far >= enough {
            Some(Verdict::Refused)
        } else if so_far + awaited < enough {
            Some(Verdict::Failed)
        } else {
            None
        }
    }

    fn is_lost(&self) -> bool {
        self.given_back || self.verdict.is_some_and(|verdict| verdict != Verdict::Won)
    }

    fn undo_all(&mut self) {
        for node in 0..self.nodes.len() {
            self.undo_at(node);
        }
    }

    /// Has a node's part undone if there may be one. What is still on its way is undone when it has arrived.
    fn undo_at(&mut self, node: usize) {
        let may_hold = matches!(self.nodes[node], Node::Answered(Answer::Yes | Answer::Failed(Effect::Unknown)));
        if self.question == Question::Acquire && may_hold {
            self.undo.push_back(node);
        }
    }
}

/// How many of `nodes` are more than half of them. Of an even number it is half and one more, so that no two halves win.
pub(crate) const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

#[cfg(test)]
mod tests;
