use std::io::{self, Read, Write};
use std::iter::repeat_with;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use redis::{FromRedisValue, RedisResult, Value};

use crate::resp;

/// The user that the testkit speaks as.
pub(super) const USER: &str = "testkit";

/// The longest that an admin command waits for its reply.
const REPLY_LIMIT: Duration = Duration::from_secs(10);

/// The testkit's way into a private server, whatever a test has done to the others: the Unix socket and a user of its own.
pub(super) struct Door {
    socket: PathBuf,
    secret: String,
    /// The commands that we have sent to the running server, to be subtracted from its count. Locked over every
    /// conversation, so that a count is never taken in the middle of one.
    sent: Mutex<u64>,
}

impl Door {
    pub(super) fn new(socket: PathBuf) -> Self {
        let secret = repeat_with(fastrand::alphanumeric).take(20).collect();
        Self { socket, secret, sent: Mutex::new(0) }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// Sends one command and reads its reply.
    pub(super) fn command<T: FromRedisValue>(&self, arguments: &[&str]) -> RedisResult<T> {
        self.converse(arguments).map(|(reply, ..)| reply)
    }

    /// Sends one command, reads its reply and keeps the connection.
    pub(super) fn connection_after(&self, arguments: &[&str]) -> RedisResult<Connection> {
        self.converse::<()>(arguments).map(|(_, connection, _)| connection)
    }

    pub(super) fn commands_processed(&self) -> RedisResult<u64> {
        let (info, _, sent) = self.converse::<redis::InfoDict>(&["INFO", "stats"])?;
        let total = info
            .get::<u64>("total_commands_processed")
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "INFO does not tell total_commands_processed"))?;
        // The server counts a command when it has ended, so this INFO is not in its own answer.
        Ok(total.saturating_sub(sent - 1))
    }

    /// A new server counts from zero.
    pub(super) fn start_counting_anew(&self) {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = 0;
    }

    fn converse<T: FromRedisValue>(&self, arguments: &[&str]) -> RedisResult<(T, Connection, u64)> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut connection = Connection::open(&self.socket)?;
        *sent += 1;
        connection.ask(&["AUTH", USER, &self.secret])?;
        *sent += 1;
        let reply = connection.ask(arguments)?;
        Ok((redis::from_redis_value(reply)?, connection, *sent))
    }
}

/// A connection that sends what it is told and nothing else; the client crate's sends commands of its own, whose number
/// would have to be known.
pub(super) struct Connection {
    stream: UnixStream,
    received: BytesMut,
}

impl Connection {
    fn open(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        stream.set_write_timeout(Some(REPLY_LIMIT))?;
        Ok(Self { stream, received: BytesMut::new() })
    }

    fn ask(&mut self, arguments: &[&str]) -> RedisResult<Value> {
        let mut command = redis::Cmd::new();
        command.arg(arguments);
        self.stream.write_all(&command.get_packed_command())?;
        let frame = self.next_frame()?;
        redis::parse_redis_value(&frame)?.extract_error()
    }

    /// Waits for the next frame: for ever, if [`wait_for_ever`](Connection::wait_for_ever) was called.
    pub(super) fn next_frame(&mut self) -> io::Result<Bytes> {
        loop {
            if let Some(frame) = resp::split_frame(&mut self.received)? {
                return Ok(frame);
            }
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.received.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn wait_for_ever(&self) -> io::Result<()> {
        self.stream.set_read_timeout(None)
    }

    /// What closes this connection from another thread.
    pub(super) fn closer(&self) -> io::Result<Closer> {
        self.stream.try_clone().map(Closer)
    }
}

/// Closes a connection when dropped, so that whoever reads from it is told.
pub(super) struct Closer(UnixStream);

impl Drop for Closer {
    fn drop(&mut self) {
        // It fails only if the server has closed it already.
        drop(self.0.shutdown(Shutdown::Both));
    }
}
