//! What the tests stand on: a client that shows each byte, and a proxy in front of a server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use lock_core::Moment;
use lock_testkit::RedisServer;
use lock_testkit::fault::{Armed, Proxy};

/// Long enough for anything to arrive that is not held.
pub(crate) const A_WHILE: Duration = Duration::from_millis(100);

/// The longest that anything may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A client that shows each byte.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, command: &str) {
        let words: Vec<_> = command.split(' ').collect();
        let packed = redis::Cmd::new().arg(words).get_packed_command();
        self.0.write_all(&packed).unwrap();
    }

    /// The next line, without its end.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            line.push(byte[0]);
        }
        Ok(String::from_utf8(line).unwrap().trim_end().to_owned())
    }

    pub(crate) fn ask(&mut self, command: &str) -> io::Result<String> {
        self.send(command);
        self.line()
    }

    #[track_caller]
    pub(crate) fn assert_silent(&mut self) {
        self.0.set_read_timeout(Some(A_WHILE)).unwrap();
        let read = self.0.read(&mut [0]);
        assert!(read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock), "{read:?}");
        self.0.set_read_timeout(Some(LIMIT)).unwrap();
    }

    #[track_caller]
    pub(crate) fn assert_cut(&mut self) {
        let end = self.line().unwrap_err();
        assert!(matches!(end.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset), "{end}");
    }
}

pub(crate) fn pair() -> (RedisServer, Proxy) {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    (server, proxy)
}

pub(crate) fn stored(server: &RedisServer, key: &str) -> Option<String> {
    server.command(&["GET", key]).unwrap()
}

#[track_caller]
pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    let limit = Moment::now().saturating_add(LIMIT);
    while !holds() {
        assert!(!limit.remaining().is_zero(), "not within 20 s");
        thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
pub(crate) fn until_seen(armed: &Armed) {
    until(|| armed.times_seen() > 0);
}
