use std::ffi::OsStr;
use std::fs;
use std::io;
use std::process::{Child, ChildStdin, ChildStdout, Command};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use lock_core::Moment;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long a signal may take to show its effect; a loaded machine needs milliseconds.
const SIGNAL_LIMIT: Duration = Duration::from_secs(10);

/// A child process that ends with its owner: when this value is dropped, and also when this whole process is killed.
///
/// It runs on Linux, because it needs `PR_SET_PDEATHSIG`, set by util-linux's `setpriv`. It is what the private servers of
/// this crate are made of; a test that pauses or kills a lock's holder can use it for the holder.
///
/// # Examples
///
/// ```
/// use lock_testkit::Process;
///
/// let mut command = Process::command("sleep");
/// command.arg("60");
/// let sleeper = Process::spawn(command)?;
/// sleeper.stop()?;
/// sleeper.cont()?;
/// sleeper.kill()?;
/// assert!(!sleeper.is_running()?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    child: Mutex<Child>,
}

impl Process {
    /// A command that will run `program`, tied to this process. Add arguments, environment and streams, then give it to
    /// [`Process::spawn`].
    ///
    /// The shell between the two looks at its parent once the death signal is set, because a parent that died before would
    /// never send it. Both wrappers replace themselves, so the child's pid is the program's.
    #[must_use]
    pub fn command(program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "sh", "-c", r#"[ "$PPID" = "$0" ] && exec "$@""#])
            .arg(std::process::id().to_string())
            .arg(program);
        command
    }

    /// Starts a command made by [`Process::command`].
    ///
    /// # Errors
    ///
    /// If `setpriv` cannot be run. A program that does not exist starts and ends at once with exit code 127.
    pub fn spawn(command: Command) -> io::Result<Self> {
        let child = spawn_on_immortal_thread(command).map_err(|error| {
            let says = format!("cannot run `setpriv` ({error}); install util-linux, which every Debian has");
            io::Error::new(error.kind(), says)
        })?;
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("Linux's pids are below 2^22"));
        Ok(Self { pid, child: Mutex::new(child) })
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// Whether it has not ended yet. A stopped process is running.
    ///
    /// # Errors
    ///
    /// If the operating system cannot tell.
    pub fn is_running(&self) -> io::Result<bool> {
        Ok(self.child().try_wait()?.is_none())
    }

    /// Its standard input, if the command asked for a pipe; it can be taken once.
    pub fn take_stdin(&self) -> Option<ChildStdin> {
        self.child().stdin.take()
    }

    /// Its standard output, if the command asked for a pipe; it can be taken once.
    pub fn take_stdout(&self) -> Option<ChildStdout> {
        self.child().stdout.take()
    }

    /// Kills it with SIGKILL, and returns when it is gone. It may have ended before.
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    pub fn kill(&self) -> io::Result<()> {
        let mut child = self.child();
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Stops it with SIGSTOP, and returns when every thread of it stands still.
    ///
    /// # Errors
    ///
    /// If it has ended, or does not stop within 10 s.
    pub fn stop(&self) -> io::Result<()> {
        self.signal(Signal::SIGSTOP)?;
        let limit = Moment::now().saturating_add(SIGNAL_LIMIT);
        while !self.is_stopped()? {
            if limit.remaining().is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{} did not stop within 10 s", self.pid)));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Lets it run on after [`Process::stop`].
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn cont(&self) -> io::Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Sends a signal, unless the process has ended: its pid may be another's then.
    fn signal(&self, signal: Signal) -> io::Result<()> {
        let mut child = self.child();
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!("process {} has ended with {status}", self.pid)));
        }
        kill(self.pid, signal).map_err(io::Error::from)
    }

    /// Whether every thread is in state T of proc(5).
    pub(crate) fn is_stopped(&self) -> io::Result<bool> {
        for task in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            let stat = match fs::read_to_string(task?.path().join("stat")) {
                Ok(stat) => stat,
                // A thread that ended meanwhile does not move either.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // The command's name, in parentheses, may hold anything; the state follows the last of them.
            if !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Nobody is left to tell: a child that cannot be killed has ended.
        drop(child.kill());
        drop(child.wait());
    }
}

/// The death signal comes when the *thread* that spawned the child ends, so one thread that lives as long as this process
/// spawns them all (prctl(2), `PR_SET_PDEATHSIG`).
fn spawn_on_immortal_thread(command: Command) -> io::Result<Child> {
    type Job = (Command, SyncSender<io::Result<Child>>);
    static SPAWNER: OnceLock<SyncSender<Job>> = OnceLock::new();

    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, todo) = sync_channel::<Job>(1);
        thread::Builder::new()
            .name("spawner".into())
            .spawn(move || {
                for (mut command, answer) in todo {
                    // An asker that has gone away drops the answer, and with it a child that nobody ties down: none does,
                    // because it waits below.
                    drop(answer.send(command.spawn()));
                }
            })
            .expect("a test process can start a thread");
        jobs
    });
    let (answer, child) = sync_channel(1);
    spawner.send((command, answer)).expect("the spawner never ends");
    child.recv().expect("the spawner answers every job")
}
