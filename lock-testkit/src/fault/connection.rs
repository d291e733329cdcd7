use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lock_core::Moment;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};

use super::dialogue::Dialogue;
use super::rule::{Action, Rule};
use super::tap::Tap;
use super::{Direction, Segments};
use crate::resp;

/// How many frames may be on their way in one direction of a connection; more wait in the sockets.
const ON_THE_WAY: usize = 4_096;

/// What all connections of a proxy have in common.
#[derive(Debug)]
pub(super) struct Shared {
    server: SocketAddr,
    is_resp: bool,
    /// False for a black hole.
    open: watch::Sender<bool>,
    rules: Mutex<Vec<Arc<Rule>>>,
    flows: Mutex<[Flow; 2]>,
    tap: Mutex<Tap>,
}

/// How bytes go in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    pub(super) delay: Duration,
    pub(super) segments: Option<Segments>,
}

impl Shared {
    pub(super) fn new(server: SocketAddr, is_resp: bool) -> Self {
        Self {
            server,
            is_resp,
            open: watch::Sender::new(true),
            rules: Mutex::default(),
            flows: Mutex::default(),
            tap: Mutex::default(),
        }
    }

    pub(super) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }

    pub(super) fn add_rule(&self, rule: Arc<Rule>) {
        let mut rules = lock(&self.rules);
        rules.retain(|rule| rule.is_open());
        rules.push(rule);
    }

    pub(super) fn set_flow(&self, direction: Direction, set: impl FnOnce(&mut Flow)) {
        set(&mut lock(&self.flows)[direction as usize]);
    }

    pub(super) fn tap(&self) -> MutexGuard<'_, Tap> {
        lock(&self.tap)
    }

    fn flow(&self, direction: Direction) -> Flow {
        lock(&self.flows)[direction as usize]
    }

    /// Waits while nothing passes.
    async fn opened(&self) {
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open).await.expect("the proxy holds its own sender");
    }

    /// The fault that takes this request.
    fn rule_for(&self, arguments: &[Bytes]) -> Option<Arc<Rule>> {
        let rules = lock(&self.rules).clone();
        rules.into_iter().find(|rule| rule.takes(arguments))
    }
}

/// Proxys one connection until either side has ended it, or a fault cuts it.
pub(super) async fn serve(shared: Arc<Shared>, mut client: TcpStream) {
    shared.opened().await;
    // A server that is away is shown to the client as a connection that is closed at once.
    let Ok(mut server) = TcpStream::connect(shared.server).await else { return };
    for stream in [&client, &server] {
        // It fails only on a connection that has ended, which its reader will notice.
        drop(stream.set_nodelay(true));
    }
    let connection = Connection { shared, dialogue: Mutex::new(Dialogue::new()) };
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let (requests, requests_read) = mpsc::channel(ON_THE_WAY);
    let (replies, replies_read) = mpsc::channel(ON_THE_WAY);

    let up = async {
        let (end, ()) = tokio::join!(
            connection.read_requests(from_client, requests),
            connection.write(Direction::ToServer, requests_read, to_server)
        );
        // A client that has gone does not end the connection: the server reads what was sent before, then closes too.
        if end == End::Closed {
            std::future::pending::<()>().await;
        }
    };
    let down = async {
        tokio::join!(
            connection.read_replies(from_server, replies),
            connection.write(Direction::ToClient, replies_read, to_client)
        );
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

/// Why a direction has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    Cut,
}

/// What is on its way to a writer.
struct Parcel {
    due: Option<Moment>,
    bytes: Bytes,
}

struct Connection {
    shared: Arc<Shared>,
    /// Requests in flight, each with the fault that waits for its reply.
    dialogue: Mutex<Dialogue<Option<Arc<Rule>>>>,
}

impl Connection {
    async fn read_requests(&self, mut client: ReadHalf<'_>, onward: mpsc::Sender<Parcel>) -> End {
        let mut received = BytesMut::new();
        loop {
            while let Some(frame) = self.next_frame(&mut received) {
                self.shared.opened().await;
                if self.shared.is_resp && self.ask(&frame).await == Next::Cut {
                    return End::Cut;
                }
                self.send(Direction::ToServer, &onward, frame).await;
            }
            if !read(&mut client, &mut received).await {
                return End::Closed;
            }
        }
    }

    async fn read_replies(&self, mut server: ReadHalf<'_>, onward: mpsc::Sender<Parcel>) {
        let mut received = BytesMut::new();
        loop {
            while let Some(frame) = self.next_frame(&mut received) {
                self.shared.opened().await;
                if self.shared.is_resp && self.answer(&frame).await == Next::Cut {
                    return;
                }
                self.send(Direction::ToClient, &onward, frame).await;
            }
            if !read(&mut server, &mut received).await {
                return;
            }
        }
    }

    /// A request has come: has its fault happen, and says whether the connection goes on.
    async fn ask(&self, frame: &Bytes) -> Next {
        let arguments = resp::arguments(frame).unwrap_or_else(|error| not_resp(&error));
        self.shared.tap().request(&arguments);
        let rule = self.shared.rule_for(&arguments);
        if let Some(rule) = &rule {
            match rule.action {
                Action::HoldRequest => {
                    rule.see();
                    rule.released().await;
                }
                Action::Cut => {
                    rule.see();
                    return Next::Cut;
                }
                Action::HoldReply | Action::LoseReply => {}
            }
        }
        lock(&self.dialogue).asked(&arguments, rule);
        Next::Forward
    }

    /// A frame has come from the server: has the fault of its request happen.
    async fn answer(&self, frame: &Bytes) -> Next {
        let request = lock(&self.dialogue).answered(frame).unwrap_or_else(|error| not_resp(&error));
        let Some(rule) = request.flatten() else { return Next::Forward };
        match rule.action {
            Action::HoldReply => {
                rule.see();
                rule.released().await;
                Next::Forward
            }
            Action::LoseReply if !rule.is_released() => {
                rule.see();
                Next::Cut
            }
            Action::HoldRequest | Action::LoseReply | Action::Cut => Next::Forward,
        }
    }

    /// What is to be forwarded next: a frame, or whatever there is.
    fn next_frame(&self, received: &mut BytesMut) -> Option<Bytes> {
        if self.shared.is_resp {
            return resp::split_frame(received).unwrap_or_else(|error| not_resp(&error));
        }
        (!received.is_empty()).then(|| received.split().freeze())
    }

    async fn send(&self, direction: Direction, onward: &mpsc::Sender<Parcel>, bytes: Bytes) {
        let delay = self.shared.flow(direction).delay;
        let due = (!delay.is_zero()).then(|| Moment::now().saturating_add(delay));
        onward.send(Parcel { due, bytes }).await.expect("the writer reads until its sender has gone");
    }

    /// Writes what comes, each when it is due, until nothing more can come.
    async fn write(&self, direction: Direction, mut parcels: mpsc::Receiver<Parcel>, mut to: WriteHalf<'_>) {
        // When the reader at the other end has gone, what comes is thrown away: the other direction may still have to
        // deliver something.
        let mut is_connected = true;
        while let Some(Parcel { due, bytes }) = parcels.recv().await {
            if let Some(due) = due {
                tokio::time::sleep(due.remaining()).await;
            }
            self.shared.opened().await;
            if is_connected {
                is_connected = write_segments(&mut to, &bytes, self.shared.flow(direction).segments).await.is_ok();
            }
        }
        // An end of the stream does not pass a black hole either.
        self.shared.opened().await;
        if is_connected {
            // It fails only if the other side has closed meanwhile, which is what we want to tell it.
            drop(to.shutdown().await);
        }
    }
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Forward,
    Cut,
}

/// Reads more; false at the end of the stream. A connection that was reset has ended, too.
async fn read(from: &mut ReadHalf<'_>, received: &mut BytesMut) -> bool {
    matches!(from.read_buf(received).await, Ok(length) if length > 0)
}

async fn write_segments(to: &mut WriteHalf<'_>, bytes: &[u8], segments: Option<Segments>) -> io::Result<()> {
    let Some(Segments { bytes: size, pause }) = segments else { return to.write_all(bytes).await };
    for segment in bytes.chunks(size) {
        // Nagle's algorithm is off, so each write is a segment.
        to.write_all(segment).await?;
        if pause.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(pause).await;
        }
    }
    Ok(())
}

fn not_resp(error: &io::Error) -> ! {
    panic!("{error}; a proxy for anything but plain Redis is started with `start_opaque`")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
