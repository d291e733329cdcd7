//! Family H: locks that live by a session or a lease of the store.

mod ended;
mod node;
mod shared;
mod silent;
mod store;

use super::Scenario;

pub(super) const ALL: &[Scenario] = &[
    ended::HOLDER,
    ended::HOLDER_FENCED,
    ended::WAITER,
    shared::ONE_LEASE,
    silent::SILENT,
    node::LOST_CREATE,
    node::PARENT_DELETED,
];
