//! What is done to servers and contenders, heard as events of `tracing`.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Subscriber;
use tracing::{Event, Metadata};

use super::Transcript;

/// The target under which the lab says what it does; that of the test kit is the other.
pub(crate) const TARGET: &str = "lock_bench::act";

/// Writes down from now on what this process does to servers and contenders.
pub(super) fn hear(transcript: &Transcript) {
    // One is told in a process; a second time, its log is what was set up first.
    drop(tracing::subscriber::set_global_default(Ears(transcript.clone())));
}

struct Ears(Transcript);

impl Subscriber for Ears {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        [TARGET, "lock_testkit::act"].contains(&metadata.target())
    }

    fn event(&self, event: &Event<'_>) {
        let mut heard = Heard::default();
        event.record(&mut heard);
        self.0.act(heard.port, heard.what);
    }

    // There are no spans of these targets.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Heard {
    port: Option<u16>,
    what: String,
}

impl Visit for Heard {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "port" {
            self.port = u16::try_from(value).ok();
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.what = format!("{value:?}");
        }
    }
}
