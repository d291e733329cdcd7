use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use super::{Proxy, Request};

/// A fault that is being described: [`Proxy::when`] begins it, and one of these methods arms it.
///
/// It is for the first matching request from now on, or for every one with [`every_time`](When::every_time). Where several
/// faults match a request, the one that was armed first takes it.
#[derive(Debug)]
#[must_use = "a fault is armed by saying what is to happen"]
pub struct When<'a> {
    pub(super) proxy: &'a Proxy,
    pub(super) request: Request,
    pub(super) every_time: bool,
}

impl When<'_> {
    /// Takes every matching request until the fault is released, not only the first.
    pub const fn every_time(mut self) -> Self {
        self.every_time = true;
        self
    }

    /// Holds the request, and everything behind it on its connection (on its stream, for etcd), until [`Armed::release`]. It
    /// then reaches the server even if the client has gone or given it up meanwhile: that is how a late request lands.
    pub fn hold_request(self) -> Armed {
        self.arm(Action::HoldRequest)
    }

    /// Lets the request through and holds its reply, and everything behind that on its connection (on its stream, for etcd),
    /// until [`Armed::release`]. It is seen when the reply has come from the server, so the request has been applied.
    pub fn hold_reply(self) -> Armed {
        self.arm(Action::HoldReply)
    }

    /// Lets the server answer, swallows the reply and everything behind it, and cuts the connection. Nothing is ever taken
    /// out of the middle of a stream, where the next reply would be taken for the missing one. It is seen when the reply
    /// has come from the server.
    pub fn lose_reply(self) -> Armed {
        self.arm(Action::LoseReply)
    }

    /// Cuts the connection instead of forwarding the request. What was sent before it has been forwarded.
    pub fn cut(self) -> Armed {
        self.arm(Action::Cut)
    }

    fn arm(self, action: Action) -> Armed {
        Armed::new(self.proxy, Rule::new(Sender::Client, self.request, self.every_time, action))
    }
}

/// A fault of a push that is being described: [`Proxy::when_pushed`] begins it, and one of these methods arms it.
///
/// As with [`When`], it is for the first matching push unless [`every_time`](WhenPushed::every_time) is asked for.
#[derive(Debug)]
#[must_use = "a fault is armed by saying what is to happen"]
pub struct WhenPushed<'a> {
    pub(super) proxy: &'a Proxy,
    pub(super) push: Request,
    pub(super) every_time: bool,
}

impl WhenPushed<'_> {
    /// Takes every matching push until the fault is released, not only the first.
    pub const fn every_time(mut self) -> Self {
        self.every_time = true;
        self
    }

    /// Holds the push, and everything behind it on its connection (on its stream, for etcd), until [`Armed::release`].
    pub fn hold(self) -> Armed {
        self.arm(Action::HoldReply)
    }

    /// Swallows the push and everything behind it, and cuts the connection.
    pub fn lose(self) -> Armed {
        self.arm(Action::LoseReply)
    }

    fn arm(self, action: Action) -> Armed {
        Armed::new(self.proxy, Rule::new(Sender::Server, self.push, self.every_time, action))
    }
}

/// A fault that waits for its request or push, or has had it. Dropping it releases it.
#[derive(Debug)]
#[must_use = "a fault ends when its handle is dropped"]
pub struct Armed(Arc<Rule>);

impl Armed {
    fn new(proxy: &Proxy, rule: Rule) -> Self {
        let rule = Arc::new(rule);
        proxy.add_rule(Arc::clone(&rule));
        Self(rule)
    }

    /// Waits until it has happened once: the request or the push has come, or for a fault of the reply, that has.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost if the future is dropped.
    pub async fn seen(&self) {
        let mut state = self.0.state.subscribe();
        state.wait_for(|state| state.seen > 0).await.expect("the rule holds its own sender");
    }

    /// How often it has happened.
    #[must_use]
    pub fn times_seen(&self) -> u64 {
        self.0.state.borrow().seen
    }

    /// Ends the fault: what is held goes on its way, and no further request is taken. It may be called more than once.
    pub fn release(&self) {
        self.0.state.send_modify(|state| state.released = true);
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.release();
    }
}

/// Who has sent what a fault is for: a client a request, or a server a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Client,
    Server,
}

/// What is to happen to a request. A push is held and lost as a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    HoldRequest,
    HoldReply,
    LoseReply,
    Cut,
}

#[derive(Debug)]
pub(super) struct Rule {
    sender: Sender,
    request: Request,
    every_time: bool,
    pub(super) action: Action,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: bool,
    seen: u64,
    released: bool,
}

impl Rule {
    fn new(sender: Sender, request: Request, every_time: bool, action: Action) -> Self {
        Self { sender, request, every_time, action, state: watch::Sender::new(State::default()) }
    }

    /// Whether the rule is for this request or push; a rule for one is then used up. All that passes a proxy comes on its one
    /// thread, so no two can take it.
    pub(super) fn takes(&self, sender: Sender, arguments: &[Bytes]) -> bool {
        let takes = self.sender == sender && self.is_open() && self.request.matches(arguments);
        if takes {
            self.state.send_modify(|state| state.taken = true);
        }
        takes
    }

    /// Says that it has happened.
    pub(super) fn see(&self) {
        self.state.send_modify(|state| state.seen += 1);
    }

    /// Whether it may still take a request.
    pub(super) fn is_open(&self) -> bool {
        let state = self.state.borrow();
        !state.released && (self.every_time || !state.taken)
    }

    pub(super) fn is_released(&self) -> bool {
        self.state.borrow().released
    }

    pub(super) async fn released(&self) {
        let mut state = self.state.subscribe();
        state.wait_for(|state| state.released).await.expect("the rule holds its own sender");
    }
}
