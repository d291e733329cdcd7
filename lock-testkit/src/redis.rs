mod admin;
mod builder;
mod cluster;
mod monitor;
mod nodes;
mod sentinel;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, thread};

use lock_core::Moment;
use redis::{FromRedisValue, RedisResult};

use self::admin::Door;
pub use self::builder::RedisServerBuilder;
use self::builder::Role;
pub use self::cluster::{RedisCluster, RedisClusterBuilder};
pub use self::monitor::{Monitor, Monitored};
pub use self::nodes::RedisNodes;
pub use self::sentinel::{RedisSentinel, RedisSentinelBuilder};
use crate::port::Port;
use crate::program;
use crate::{Process, TempFolder, act};

/// How long a server may take until it answers PING; it needs about 10 ms, and longer to load data.
const START_LIMIT: Duration = Duration::from_secs(30);

/// A private redis-server on 127.0.0.1, with a port and a temporary folder of its own. Dropping it kills the server and
/// removes the folder; when this process is killed, they go too.
///
/// Nothing is persisted unless the configuration says so. Every method is synchronous and short, so it may be called from a
/// test of either kind. The program is `redis-server` on PATH, or what the variable `HASP_REDIS_SERVER` names. It needs
/// Redis 6.2 and Linux.
///
/// The testkit talks to it over the Unix socket, as a user of its own: what a test does to the default user, to the network
/// or to other clients does not shut it out.
///
/// # Examples
///
/// ```
/// use lock_testkit::RedisServer;
///
/// let server = RedisServer::start()?;
/// let connection = redis::Client::open(server.url())?.get_connection()?;
/// # drop(connection);
///
/// server.command::<()>(&["SET", "a", "1"])?;
/// server.restart()?;
/// assert_eq!(server.command::<u64>(&["DBSIZE"])?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RedisServer {
    // Before the folder, so that it has ended when the folder goes.
    process: Mutex<Process>,
    program: Program,
    folder: TempFolder,
    port: Port,
    tls_port: Option<Port>,
    _cluster_port: Option<Arc<Port>>,
    password: Option<String>,
    door: Arc<Door>,
}

impl RedisServer {
    /// Starts a server with no options. It takes about 20 ms, and returns when the server answers PING.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no redis-server, with what to do; else if it does not start, with the end of its log.
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// A server with options.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// Where it listens: 127.0.0.1 and its port, the same for as long as this value lives.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// The TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The URL of the TCP port, such as `redis://127.0.0.1:12345`, with the default user's password if it has one.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(self.addr())
    }

    /// The URL of this server at another address, such as that of a proxy in front of it.
    #[must_use]
    pub fn url_at(&self, addr: SocketAddr) -> String {
        match &self.password {
            Some(password) => format!("redis://:{}@{addr}", percent_encoded(password)),
            None => format!("redis://{addr}"),
        }
    }

    /// The URL of the TLS port, such as `rediss://127.0.0.1:12345`, with the default user's password if it has one; `None`
    /// unless it was started with a [certificate](RedisServerBuilder::tls).
    #[must_use]
    pub fn tls_url(&self) -> Option<String> {
        let port = self.tls_port.as_ref()?;
        Some(self.url_at((Ipv4Addr::LOCALHOST, port.number()).into()).replacen("redis:", "rediss:", 1))
    }

    /// The path of the Unix socket that it also listens on.
    #[must_use]
    pub fn unix_socket(&self) -> &Path {
        self.door.socket()
    }

    /// The URL of the Unix socket, with the default user's password if it has one.
    #[must_use]
    pub fn unix_url(&self) -> String {
        let path = self.unix_socket().display();
        match &self.password {
            Some(password) => format!("redis+unix://{path}?pass={}", percent_encoded(password)),
            None => format!("redis+unix://{path}"),
        }
    }

    /// The server's process id; a new one after each [`restart`](RedisServer::restart).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// Kills it with SIGKILL, and returns when it is gone. Its port is kept free for [`restart`](RedisServer::restart) by
    /// nobody but chance: it lies outside the range that the kernel gives to clients.
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    pub fn kill(&self) -> io::Result<()> {
        act::tell(self.port(), "is killed");
        self.process().kill()
    }

    /// Stops it with SIGSTOP: connections are accepted by the kernel and stay silent. It returns when every thread of the
    /// server stands still.
    ///
    /// # Errors
    ///
    /// If it is not running.
    pub fn stop(&self) -> io::Result<()> {
        act::tell(self.port(), "is stopped");
        self.process().stop()
    }

    /// Lets it run on after [`stop`](RedisServer::stop).
    ///
    /// # Errors
    ///
    /// If it is not running.
    pub fn cont(&self) -> io::Result<()> {
        act::tell(self.port(), "goes on");
        self.process().cont()
    }

    /// Kills it if it runs, and starts it anew on the same port with the same configuration. It returns when the new server
    /// answers PING, so all data is loaded. Without persistence in the configuration it is empty.
    ///
    /// # Errors
    ///
    /// If it does not start, with the end of its log.
    pub fn restart(&self) -> io::Result<()> {
        act::tell(self.port(), "is started anew");
        let mut process = self.process();
        process.kill()?;
        *process = run(&self.program, self.folder.path(), &self.door)?;
        Ok(())
    }

    /// Sends one command with all rights, over a connection of its own, and reads its reply: CONFIG SET, SCRIPT FLUSH,
    /// FLUSHALL, CLIENT KILL, DEBUG, or a look at what a lock has written.
    ///
    /// # Errors
    ///
    /// An error reply; a reply that is no `T`; no reply within 10 s, as when the server is stopped.
    pub fn command<T: FromRedisValue>(&self, arguments: &[&str]) -> RedisResult<T> {
        act::tell_command(self.port(), arguments);
        self.door.command(arguments)
    }

    /// How many commands the server has processed since it started, without those of the testkit. Commands that scripts
    /// call count too; commands that it refused do not.
    ///
    /// # Errors
    ///
    /// As for [`command`](RedisServer::command).
    pub fn commands_processed(&self) -> RedisResult<u64> {
        self.door.commands_processed()
    }

    /// Begins to record every command that reaches the server.
    ///
    /// # Errors
    ///
    /// As for [`command`](RedisServer::command).
    pub fn monitor(&self) -> RedisResult<Monitor> {
        Monitor::start(Arc::clone(&self.door))
    }

    /// What the server has logged since it was first started.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    pub fn log(&self) -> io::Result<String> {
        fs::read_to_string(log_path(self.folder.path()))
    }

    /// The URL of the TLS port, if it has one, or else of the other.
    fn client_url(&self) -> String {
        self.tls_url().unwrap_or_else(|| self.url())
    }

    /// The port on which other servers reach it: by TLS, if it has that.
    fn peer_port(&self) -> u16 {
        self.tls_port.as_ref().unwrap_or(&self.port).number()
    }

    /// Whether it runs and has not been stopped.
    fn is_awake(&self) -> bool {
        let process = self.process();
        process.is_running().unwrap_or(false) && !process.is_stopped().unwrap_or(true)
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisServer").field("addr", &self.addr()).field("pid", &self.pid()).finish_non_exhaustive()
    }
}

/// What is run.
struct Program {
    path: PathBuf,
    role: Role,
    environment: Vec<(OsString, OsString)>,
}

/// The variable that names the redis-server to run.
const VARIABLE: &str = "HASP_REDIS_SERVER";

/// The redis-server to run: the named one, or else the first on the path.
fn find_program(named: Option<OsString>, path: Option<OsString>) -> io::Result<PathBuf> {
    program::find("redis-server", VARIABLE, "redis-server", named, path)
}

/// Starts several servers at the same time.
fn start_all(builders: Vec<RedisServerBuilder>) -> io::Result<Vec<RedisServer>> {
    thread::scope(|scope| {
        let starting: Vec<_> = builders.into_iter().map(|builder| scope.spawn(|| builder.start())).collect();
        starting.into_iter().map(|server| server.join().expect("starting a server does not panic")).collect()
    })
}

/// What each of these servers has logged, for whoever wants to know why a test failed.
fn logs<'a>(servers: impl Iterator<Item = &'a RedisServer>) -> String {
    servers.fold(String::new(), |mut logs, server| {
        let log = server.log().unwrap_or_else(|error| format!("cannot be read: {error}\n"));
        write!(logs, "the log of {server:?}:\n{log}").expect("a string takes every text");
        logs
    })
}

/// Starts the program in its folder and waits until it answers PING. A port that is taken is `AddrInUse`.
fn run(program: &Program, folder: &Path, door: &Door) -> io::Result<Process> {
    let log = OpenOptions::new().create(true).append(true).open(log_path(folder))?;
    let logged_before = log.metadata()?.len();
    let process = spawn(program, folder, log)?;
    door.start_counting_anew();
    let limit = Moment::now().saturating_add(START_LIMIT);
    loop {
        let answer = door.command::<String>(&["PING"]);
        if answer.is_ok() {
            return Ok(process);
        }
        let ended = !process.is_running()?;
        if ended || limit.remaining().is_zero() {
            let log = fs::read(log_path(folder))?;
            let log = String::from_utf8_lossy(&log[usize::try_from(logged_before).unwrap_or(0)..]).into_owned();
            let kind = if log.contains("Address already in use") {
                io::ErrorKind::AddrInUse
            } else if ended {
                io::ErrorKind::Other
            } else {
                io::ErrorKind::TimedOut
            };
            let what = if ended { "ended at once".into() } else { format!("does not answer: {answer:?}") };
            return Err(io::Error::new(kind, format!("{} {what}; its log:\n{log}", program.path.display())));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn spawn(program: &Program, folder: &Path, log: File) -> io::Result<Process> {
    let mut command = Process::command(&program.path);
    command.arg(config_path(folder));
    if let Role::Sentinel = program.role {
        command.arg("--sentinel");
    }
    command
        .envs(program.environment.iter().cloned())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::from(log.try_clone()?))
        .stderr(Stdio::from(log));
    Process::spawn(command)
}

fn config_path(folder: &Path) -> PathBuf {
    folder.join("redis.conf")
}

fn log_path(folder: &Path) -> PathBuf {
    folder.join("redis.log")
}

/// A password as a URL wants it.
fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes every text");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    #[test]
    fn a_missing_server_is_an_error_that_says_what_to_do() {
        let nowhere = find_program(None, Some("/nowhere:/nowhere/else".into())).unwrap_err();
        assert_eq!(nowhere.kind(), io::ErrorKind::NotFound);
        assert_eq!(
            nowhere.to_string(),
            "there is no redis-server on PATH; run `./x setup` (Debian has it in redis-server), or let HASP_REDIS_SERVER \
             name one"
        );
        let misnamed = find_program(Some("/nowhere/redis".into()), env::var_os("PATH")).unwrap_err();
        assert!(misnamed.to_string().contains("`/nowhere/redis`, which is no file"), "{misnamed}");
    }

    #[test]
    fn a_password_fits_a_url() {
        assert_eq!(percent_encoded("a:b@c/%é"), "a%3Ab%40c%2F%25%C3%A9");
    }
}
