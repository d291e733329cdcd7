//! What a run leaves behind: nothing.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use lock_core::Moment;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn a_run_that_is_interrupted_or_killed_leaves_nothing_behind() {
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        // Everything of the run has this folder in its environment, and puts its own folders there.
        let folder = tempfile::tempdir().unwrap();
        let faults = ["compare", "--faults", "S07", "--json", "/dev/null"];
        // A shell lets its background jobs ignore SIGINT, and a test may be in one.
        let mut run = Command::new("env")
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_lock-bench")])
            .args(faults)
            .env("TMPDIR", folder.path())
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The lanes have labs, and a contender holds a lock.
        until("a contender runs", || of_the_run(folder.path()).iter().any(|command| command.contains("__contender")));
        kill(Pid::from_raw(i32::try_from(run.id()).unwrap()), signal).unwrap();
        assert!(!run.wait().unwrap().success());
        until(&format!("no process is left after {signal}"), || of_the_run(folder.path()).is_empty());
        let left = || fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        until(&format!("no folder is left after {signal}"), || left().is_empty());
    }
}

/// The command lines of the processes of a run.
fn of_the_run(folder: &Path) -> Vec<String> {
    let variable = format!("TMPDIR={}", folder.display());
    let mut commands = Vec::new();
    for entry in fs::read_dir("/proc").expect("Linux has /proc") {
        let process = entry.expect("/proc can be read").path();
        // What is no process, is another user's, or ends meanwhile cannot be read.
        let (Ok(environment), Ok(command)) = (fs::read(process.join("environ")), fs::read(process.join("cmdline")))
        else {
            continue;
        };
        if environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()) {
            commands.push(String::from_utf8_lossy(&command).replace('\0', " "));
        }
    }
    commands
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = Moment::now().saturating_add(Duration::from_secs(60));
    while !condition() {
        assert!(!limit.remaining().is_zero(), "not within a minute: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
