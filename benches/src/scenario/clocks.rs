//! Family B: clocks that are wrong.

mod client;
mod consensus;
mod server;

use super::Scenario;

pub(super) const ALL: &[Scenario] = &[
    client::FAST_CLIENT,
    client::LOSERS_STAMP,
    server::FORWARD,
    server::BACK,
    server::ONE_NODE,
    server::ONE_NODE_FENCED,
    consensus::ZOOKEEPER_CLOCKS,
    consensus::LEADER_CHANGE,
];
