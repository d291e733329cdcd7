//! What the tests share: the probe, and waiting for a condition.

#![allow(dead_code, reason = "no test needs it all")]

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use lock_clock::Slot;
use lock_core::Moment;
use lock_testkit::{Process, RedisServer, RedisServerBuilder};

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// Looks again every few milliseconds, for 60 s at most.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Moment::now().saturating_add(Duration::from_secs(60));
    while !holds() {
        assert!(!limit.remaining().is_zero(), "{what}: not within 60 s");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The program of `probe/main.rs`.
pub(crate) struct Probe {
    pub(crate) process: Process,
    dialogue: UnixStream,
}

/// What the probe reads on each clock.
pub(crate) struct Reading {
    pub(crate) wall: Duration,
    pub(crate) monotonic: Duration,
    pub(crate) boottime: Duration,
    pub(crate) lab: Duration,
    pub(crate) system_time: Duration,
    /// By `Instant`, since the probe began.
    pub(crate) since_first: Duration,
}

impl Probe {
    /// Starts it in a slot.
    pub(crate) fn start(slot: &Slot) -> Self {
        Self::start_with(slot.env().into_iter())
    }

    /// Starts it without the shim.
    pub(crate) fn start_bare() -> Self {
        Self::start_with([].into_iter())
    }

    fn start_with(environment: impl Iterator<Item = (&'static str, OsString)>) -> Self {
        let (dialogue, theirs) = UnixStream::pair().unwrap();
        // Longer than any answer may take, so that a wait that hangs is an error.
        dialogue.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let theirs = OwnedFd::from(theirs);
        let mut command = Process::command(env!("CARGO_BIN_EXE_clock-probe"));
        command.envs(environment).stdin(Stdio::from(theirs.try_clone().unwrap())).stdout(Stdio::from(theirs));
        let probe = Self { process: Process::spawn(command).unwrap(), dialogue };
        // It has begun when it answers.
        probe.read();
        probe
    }

    pub(crate) fn read(&self) -> Reading {
        let answer = self.ask("read");
        let mut clocks = answer.split(' ').map(|clock| Duration::from_nanos(clock.parse().unwrap()));
        let mut next = || clocks.next().unwrap();
        Reading {
            wall: next(),
            monotonic: next(),
            boottime: next(),
            lab: next(),
            system_time: next(),
            since_first: next(),
        }
    }

    /// Lets it wait 200 ms in some way, and tells how long that took by its own MONOTONIC.
    pub(crate) fn wait(&self, way: &str) -> Duration {
        Duration::from_millis(self.ask(way).parse().unwrap())
    }

    fn ask(&self, command: &str) -> String {
        writeln!(&self.dialogue, "{command}").unwrap();
        let mut answer = String::new();
        BufReader::new(&self.dialogue)
            .read_line(&mut answer)
            .unwrap_or_else(|error| panic!("no answer to `{command}`: {error}"));
        answer.trim_end().to_owned()
    }
}

/// A server in a slot.
pub(crate) fn redis(slot: &Slot) -> RedisServer {
    let in_slot = |builder: RedisServerBuilder, (name, value)| builder.env(name, value);
    slot.env().into_iter().fold(RedisServer::builder(), in_slot).start().unwrap()
}

/// The wall clock of a server.
pub(crate) fn redis_time(server: &RedisServer) -> io::Result<Duration> {
    let (seconds, microseconds): (u64, u64) = server.command(&["TIME"]).map_err(io::Error::other)?;
    Ok(Duration::from_secs(seconds) + Duration::from_micros(microseconds))
}
