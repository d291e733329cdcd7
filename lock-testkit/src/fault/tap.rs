use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use bytes::Bytes;

/// The most requests that are remembered.
const KEPT: usize = 1_000;

/// What a proxy has seen: a message, as it came, or the fault that holds or loses it.
#[derive(Clone, Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "what passes is a request, its reply, or a push, and a fault is what holds it up"
)]
pub enum Message {
    /// A request: the command and its arguments, as for [`Request::matching`](super::Request::matching).
    Request(Vec<Bytes>),
    /// The reply to a request, or its first part, as it is on the wire.
    Reply {
        /// The command and the arguments of that request.
        to: Vec<Bytes>,
        /// What it says.
        says: Bytes,
    },
    /// What the server sent unasked: its name, and what it says.
    Push(Vec<Bytes>),
    /// No message, but what the proxy does to the one before it, or to all from now on.
    Fault(&'static str),
}

pub(super) type Listener = Box<dyn FnMut(&Message) + Send>;

/// What has come through a proxy.
#[derive(Default)]
pub(super) struct Tap {
    listener: Option<Listener>,
    counts: BTreeMap<String, u64>,
    recent: VecDeque<Vec<Bytes>>,
    connections: u64,
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Tap {
    pub(super) fn listen(&mut self, listener: Listener) {
        self.listener = Some(listener);
    }

    pub(super) fn tell(&mut self, message: impl FnOnce() -> Message) {
        if let Some(listener) = &mut self.listener {
            listener(&message());
        }
    }

    pub(super) fn connect(&mut self) {
        self.connections += 1;
    }

    pub(super) fn request(&mut self, arguments: &[Bytes]) {
        self.tell(|| Message::Request(arguments.to_vec()));
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
