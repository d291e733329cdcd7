//! A process that holds locks as it is told, ours or theirs.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use lock_core::Moment;
use lock_testkit::Process;

/// How long an answer may take that waits for nobody. A Java program needs seconds to start on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A driver that has started and is connected.
#[derive(Debug)]
pub(crate) struct Driver {
    process: Process,
    lines: BufReader<UnixStream>,
    /// A line of which only the beginning has come.
    begun: Vec<u8>,
    errors: File,
    prefix: &'static str,
}

impl Driver {
    /// Starts `command`, made by [`Process::command`], and waits until it says that it is ready. `prefix` is put before
    /// every lock's name.
    pub(crate) fn start(mut command: Command, prefix: &'static str) -> Self {
        let (here, there) = UnixStream::pair().unwrap();
        let errors = tempfile::tempfile().unwrap();
        command.stdin(OwnedFd::from(there.try_clone().unwrap())).stdout(OwnedFd::from(there));
        command.stderr(errors.try_clone().unwrap());
        let process = Process::spawn(command).unwrap();
        let mut driver = Self { process, lines: BufReader::new(here), begun: Vec::new(), errors, prefix };
        assert_eq!(driver.answer(ANSWER_LIMIT), "ready");
        driver
    }

    /// Sends a command about a lock and waits for its answer.
    pub(crate) fn ask(&mut self, command: &str, name: &str) -> String {
        self.send(command, name);
        self.answer(ANSWER_LIMIT)
    }

    /// Sends a command whose answer comes later.
    pub(crate) fn send(&mut self, command: &str, name: &str) {
        writeln!(self.lines.get_mut(), "{command} {}{name}", self.prefix).unwrap();
    }

    /// Waits for the answer to what was sent.
    pub(crate) fn answer(&mut self, limit: Duration) -> String {
        match self.line(limit) {
            Some(line) => line,
            None => panic!("no answer within {limit:?}; its standard error:\n{}", self.errors()),
        }
    }

    /// Waits for `time` and sees to it that nothing is answered.
    pub(crate) fn stays_silent_for(&mut self, time: Duration) {
        if let Some(line) = self.line(time) {
            panic!("it should wait and says `{line}`");
        }
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// The next line, if it comes in time.
    fn line(&mut self, limit: Duration) -> Option<String> {
        let until = Moment::now().saturating_add(limit);
        loop {
            // A timeout of zero would mean none.
            self.lines.get_ref().set_read_timeout(Some(until.remaining().max(Duration::from_millis(1)))).unwrap();
            match self.lines.read_until(b'\n', &mut self.begun) {
                Ok(_) if self.begun.ends_with(b"\n") => break,
                Ok(_) => panic!("it has ended; its standard error:\n{}", self.errors()),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if until.remaining().is_zero() {
                        return None;
                    }
                }
                Err(error) => panic!("its line cannot be read: {error}"),
            }
        }
        Some(String::from_utf8(std::mem::take(&mut self.begun)).unwrap().trim_end().to_owned())
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        self.errors.rewind().unwrap();
        self.errors.read_to_string(&mut text).unwrap();
        text
    }
}
