use fastrand::Rng;
use lock_testkit::simulation::{Clock, Hold, Report};

use super::Flaw;
use super::client::Client;
use super::net::{Event, Net};
use super::node::Node;
use super::plan::{Fault, Plan};
use crate::round::Answer;

/// The clients, the nodes and what lies between them.
pub(super) struct World {
    net: Net,
    nodes: Vec<Node>,
    clients: Vec<Client>,
}

impl World {
    pub(super) fn new(seed: u64, flaw: Option<Flaw>, traced: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        // The pauses between two tries.
        fastrand::seed(rng.u64(..));
        let plan = Plan::draw(&mut rng, flaw);
        let nodes = plan.nodes.iter().map(|ppm| Node::new(Clock::new(*ppm))).collect();
        let mut net = Net::new(plan, rng, traced);
        let clients = (0..net.plan.clients.len()).map(|number| Client::new(number, flaw, &mut net)).collect();
        Self { net, nodes, clients }
    }

    pub(super) fn run(mut self) -> Report {
        while let Some(event) = self.net.next() {
            if self.net.now > self.net.plan.end {
                break;
            }
            match event {
                Event::Fault(fault) => self.fault(fault),
                Event::Request { node, letter } => {
                    if self.net.now < self.nodes[node].away {
                        self.net.note(|| format!("node {node} is away: {:?} is lost", letter.request));
                        continue;
                    }
                    let yes = self.nodes[node].apply(self.net.now, letter.request);
                    let answer = if yes { Answer::Yes } else { Answer::No };
                    self.net
                        .note(|| format!("node {node} of client {}: {:?}: {answer:?}", letter.client, letter.request));
                    self.net.answer(node, letter, answer);
                }
                Event::Client(number, stimulus) => {
                    let client = &mut self.clients[number];
                    match client.stopped_until(self.net.now) {
                        Some(until) => self.net.schedule(until, event),
                        None => client.act(stimulus, &mut self.net),
                    }
                }
            }
        }
        self.end()
    }

    fn fault(&mut self, fault: Fault) {
        self.net.note(|| format!("{fault:?}"));
        let now = self.net.now;
        match fault {
            Fault::Stop { client, during } => self.clients[client].stop(now + during),
            Fault::Jump { client, by } => self.clients[client].clock.step(now, by),
            Fault::Away { node, during } => self.nodes[node].away = self.nodes[node].away.max(now + during),
            Fault::Forget { node, away } => {
                self.nodes[node].forget();
                self.nodes[node].away = self.nodes[node].away.max(now + away);
            }
            Fault::NodeJump { node, by } => self.nodes[node].clock.step(now, by),
        }
    }

    fn end(self) -> Report {
        let mut report = Report::default();
        let end = self.net.plan.end;
        if let Some(number) = self.clients.iter().position(|client| !client.is_done()) {
            report.faults.push(format!("client {number} still waits or holds at the end"));
        }
        if let Some(node) = self.nodes.iter().position(|node| !node.is_free(end)) {
            report.faults.push(format!("node {node} still keeps the lock at the end"));
        }
        let mut holds = Vec::new();
        for (holder, client) in self.clients.iter().enumerate() {
            holds.extend(client.holds.iter().map(|&(from, until)| Hold { from, until, holder }));
        }
        report.judge("client", holds);
        report.trace = self.net.into_trace();
        report
    }
}
