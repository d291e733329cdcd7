use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

/// The most requests that are remembered.
const KEPT: usize = 1_000;

/// What has come through a proxy.
#[derive(Debug, Default)]
pub(super) struct Tap {
    counts: BTreeMap<String, u64>,
    recent: VecDeque<Vec<Bytes>>,
    connections: u64,
}

impl Tap {
    pub(super) fn connect(&mut self) {
        self.connections += 1;
    }

    pub(super) fn request(&mut self, arguments: &[Bytes]) {
        let name = arguments.first().map(|name| String::from_utf8_lossy(name).to_ascii_uppercase());
        *self.counts.entry(name.unwrap_or_default()).or_default() += 1;
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        // Copied, because a slice would keep the whole buffer that it was read into.
        self.recent.push_back(arguments.iter().map(|argument| Bytes::copy_from_slice(argument)).collect());
    }

    pub(super) const fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    pub(super) fn recent(&self) -> Vec<Vec<Bytes>> {
        self.recent.iter().cloned().collect()
    }

    pub(super) const fn connections(&self) -> u64 {
        self.connections
    }
}
