use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lock_core::Moment;
use redis::RedisResult;

use super::admin::{Closer, Connection, Door};

/// The most commands that a monitor keeps.
const KEPT: usize = 100_000;

/// How long the server may take to show a command that it has answered.
const ECHO_LIMIT: Duration = Duration::from_secs(10);

/// A record of the commands that reach a private server, by Redis's MONITOR: of every client, in the order of execution.
///
/// What comes over the Unix socket is left out, because the testkit itself comes that way; so are AUTH and the like, which
/// Redis does not show. It ends with its server and begins nowhere else: after a restart, start another.
///
/// # Examples
///
/// ```
/// use lock_testkit::RedisServer;
///
/// let server = RedisServer::start()?;
/// let mut client = redis::Client::open(server.url())?.get_connection()?;
/// let monitor = server.monitor()?;
/// redis::cmd("SET").arg("a").arg(1).exec(&mut client)?;
/// assert_eq!(monitor.commands()?[0].arguments, ["SET", "a", "1"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Monitor {
    door: Arc<Door>,
    record: Arc<Record>,
    _closer: Closer,
}

impl Monitor {
    pub(super) fn start(door: Arc<Door>) -> RedisResult<Self> {
        let connection = door.connection_after(&["MONITOR"])?;
        connection.wait_for_ever()?;
        let closer = connection.closer()?;
        let record = Arc::new(Record::default());
        let writer = Arc::clone(&record);
        thread::Builder::new().name("monitor".into()).spawn(move || writer.write(connection))?;
        Ok(Self { door, record, _closer: closer })
    }

    /// The commands recorded until now: every one that was answered before this call is among them. It keeps the last
    /// 100,000.
    ///
    /// # Errors
    ///
    /// If the server has ended, or does not answer within 10 s.
    pub fn commands(&self) -> RedisResult<Vec<Monitored>> {
        // The server tells its monitors in the order of execution: what came before our mark has been told.
        let mark = format!("mark-{:032x}", fastrand::u128(..));
        self.door.command::<()>(&["ECHO", &mark])?;
        let state = self.record.lock_after(&mark)?;
        Ok(state.lines.iter().filter(|line| !line.client.starts_with("unix:")).cloned().collect())
    }

    /// Forgets what was recorded until now.
    ///
    /// # Errors
    ///
    /// As for [`commands`](Monitor::commands).
    pub fn clear(&self) -> RedisResult<()> {
        self.commands()?;
        self.record.lock().lines.clear();
        Ok(())
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("recorded", &self.record.lock().lines.len()).finish_non_exhaustive()
    }
}

/// A command that a [`Monitor`] saw.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Monitored {
    /// The client's address, or `lua` for a command that a script called.
    pub client: String,
    /// The command and its arguments, as they were sent; bytes that are no UTF-8 are replaced.
    pub arguments: Vec<String>,
}

impl Monitored {
    /// The command's name in capitals.
    #[must_use]
    pub fn name(&self) -> String {
        self.arguments.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default()
    }

    /// Whether a script called it.
    #[must_use]
    pub fn is_from_script(&self) -> bool {
        self.client == "lua"
    }
}

#[derive(Default)]
struct Record {
    state: Mutex<State>,
    grown: Condvar,
}

#[derive(Default)]
struct State {
    lines: VecDeque<Monitored>,
    ended: Option<io::ErrorKind>,
}

impl Record {
    fn write(&self, mut connection: Connection) {
        loop {
            let frame = connection.next_frame();
            let mut state = self.lock();
            match frame {
                Ok(frame) => {
                    state.lines.extend(parse(&frame));
                    if state.lines.len() > KEPT {
                        state.lines.pop_front();
                    }
                }
                Err(error) => state.ended = Some(error.kind()),
            }
            self.grown.notify_all();
            if state.ended.is_some() {
                return;
            }
        }
    }

    /// Waits for the command that carries `mark`.
    fn lock_after(&self, mark: &str) -> io::Result<MutexGuard<'_, State>> {
        let limit = Moment::now().saturating_add(ECHO_LIMIT);
        let mut state = self.lock();
        while !state.lines.iter().rev().any(|line| line.arguments.iter().any(|argument| argument == mark)) {
            if let Some(kind) = state.ended {
                return Err(io::Error::new(kind, "the monitored server has ended; start another monitor"));
            }
            if limit.remaining().is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "MONITOR showed nothing for 10 s"));
            }
            state = self.grown.wait_timeout(state, limit.remaining()).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a line such as `+1700000000.123456 [0 127.0.0.1:5000] "SET" "a" "1"`; `None` for any other.
fn parse(frame: &[u8]) -> Option<Monitored> {
    let line = std::str::from_utf8(frame).ok()?.strip_prefix('+')?.trim_end();
    let (_, line) = line.split_once(" [")?;
    let (client, mut rest) = line.split_once("] ")?;
    let (_database, client) = client.split_once(' ')?;
    let mut arguments = Vec::new();
    while let Some(quoted) = rest.trim_start().strip_prefix('"') {
        let (argument, behind) = unquote(quoted)?;
        arguments.push(argument);
        rest = behind;
    }
    Some(Monitored { client: client.to_owned(), arguments })
}

/// The text up to the closing quote, and what stands behind that. The escapes are those of Redis's `sdscatrepr`.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut bytes = Vec::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((String::from_utf8_lossy(&bytes).into_owned(), &quoted[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => bytes.push(b'\n'),
                'r' => bytes.push(b'\r'),
                't' => bytes.push(b'\t'),
                'a' => bytes.push(7),
                'b' => bytes.push(8),
                'x' => {
                    bytes.push(u8::from_str_radix(quoted.get(at + 2..at + 4)?, 16).ok()?);
                    characters.nth(1);
                }
                other => bytes.extend(other.encode_utf8(&mut [0; 4]).bytes()),
            },
            other => bytes.extend(other.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_unquoted() {
        let seen = parse(br#"+1700000000.123456 [0 127.0.0.1:5000] "set" "a] \"\x00\xc3\xa9\n\\" """#).unwrap();
        assert_eq!((seen.client.as_str(), seen.name().as_str()), ("127.0.0.1:5000", "SET"));
        assert_eq!(seen.arguments[1..], ["a] \"\0é\n\\", ""]);
        assert!(parse(br#"+1.2 [0 lua] "del" "a""#).unwrap().is_from_script());
        assert_eq!(parse(b"+OK"), None);
    }
}
