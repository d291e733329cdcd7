use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lock_core::Moment;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};

use super::protocol::{Frame, Kind, Part, Protocol, Reply};
use super::rule::{Action, Rule, Sender};
use super::tap::{Message, Tap};
use super::{Direction, Segments};

/// How many frames may be on their way in one direction of a connection, and how many may wait behind held ones; more wait
/// in the sockets.
const ON_THE_WAY: usize = 4_096;

/// What all connections of a proxy have in common.
#[derive(Debug)]
pub(super) struct Shared {
    server: SocketAddr,
    kind: Kind,
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
    pub(super) fn new(server: SocketAddr, kind: Kind) -> Self {
        Self {
            server,
            kind,
            open: watch::Sender::new(true),
            rules: Mutex::default(),
            flows: Mutex::default(),
            tap: Mutex::default(),
        }
    }

    pub(super) const fn server(&self) -> SocketAddr {
        self.server
    }

    pub(super) fn set_open(&self, open: bool) {
        if self.open.send_replace(open) != open {
            self.tell(if open { "lets everything pass again" } else { "lets nothing pass" });
        }
    }

    /// Tells of a fault.
    pub(super) fn tell(&self, what: &'static str) {
        self.tap().tell(|| Message::Fault(what));
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

    /// The fault that takes this request, or this push.
    fn rule_for(&self, sender: Sender, arguments: &[Bytes]) -> Option<Arc<Rule>> {
        let rules = lock(&self.rules).clone();
        rules.into_iter().find(|rule| rule.takes(sender, arguments))
    }
}

/// Serves one connection until either side has ended it, or a fault cuts it.
pub(super) async fn serve(shared: Arc<Shared>, mut client: TcpStream) {
    shared.opened().await;
    // A server that is away is shown to the client as a connection that is closed at once.
    let Ok(mut server) = TcpStream::connect(shared.server).await else { return };
    for stream in [&client, &server] {
        // It fails only on a connection that has ended, which its reader will notice.
        drop(stream.set_nodelay(true));
    }
    let connection = Connection::new(shared);
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
    dialogue: Mutex<Box<dyn Protocol<Asked>>>,
    /// Has a receiver for each request that was held and has no reply.
    late: watch::Sender<()>,
}

/// A request in flight.
struct Asked {
    arguments: Vec<Bytes>,
    /// The fault that waits for its reply.
    rule: Option<Arc<Rule>>,
    _late: Option<watch::Receiver<()>>,
}

impl Connection {
    fn new(shared: Arc<Shared>) -> Self {
        let dialogue = Mutex::new(shared.kind.begin());
        Self { shared, dialogue, late: watch::Sender::new(()) }
    }

    async fn read_requests(&self, client: ReadHalf<'_>, onward: mpsc::Sender<Parcel>) -> End {
        let end = self.read(Direction::ToServer, client, &onward).await;
        // A server that would drop a late request of a client that has gone must not hear of that yet.
        if end == End::Closed && lock(&self.dialogue).drops_the_requests_of_the_gone() {
            self.late.closed().await;
        }
        end
    }

    async fn read_replies(&self, server: ReadHalf<'_>, onward: mpsc::Sender<Parcel>) {
        self.read(Direction::ToClient, server, &onward).await;
    }

    /// Reads what comes in a direction, and sends it onward as its faults allow.
    async fn read(&self, direction: Direction, mut from: ReadHalf<'_>, onward: &mpsc::Sender<Parcel>) -> End {
        let mut received = BytesMut::new();
        let mut held = Vec::<Held>::new();
        let mut is_open = true;
        while is_open || !held.is_empty() {
            let waiting: usize = held.iter().map(|held| held.behind.len()).sum();
            let mut next = VecDeque::new();
            tokio::select! {
                Held { frame, behind, .. } = first_released(&mut held) => {
                    self.shared.tell("lets go what it held");
                    self.send(direction, onward, frame.bytes).await;
                    next = behind;
                }
                more = read_more(&mut from, &mut received), if is_open && waiting < ON_THE_WAY => is_open = more,
            }
            while let Some(frame) = next.pop_front().or_else(|| self.split(direction, &mut received)) {
                if let Some(held) = held.iter_mut().find(|held| held.frame.lane == frame.lane) {
                    // A held request lands although its client has given it up.
                    if (direction, &frame.part) != (Direction::ToServer, &Part::End) {
                        held.behind.push_back(frame);
                    }
                    continue;
                }
                self.shared.opened().await;
                match self.judge(direction, &frame) {
                    Next::Forward => self.send(direction, onward, frame.bytes).await,
                    Next::Hold(rule) => held.push(Held::new(frame, rule)),
                    Next::Cut => return End::Cut,
                }
            }
        }
        End::Closed
    }

    fn split(&self, direction: Direction, received: &mut BytesMut) -> Option<Frame> {
        lock(&self.dialogue).split(direction, received).unwrap_or_else(|error| self.not_understood(&error))
    }

    /// What becomes of a frame, by the faults that there are.
    fn judge(&self, direction: Direction, frame: &Frame) -> Next {
        match (&frame.part, direction) {
            (Part::Other, _) => Next::Forward,
            (Part::Request(arguments), _) => self.ask(frame, arguments),
            (Part::End, Direction::ToServer) => {
                lock(&self.dialogue).abandoned(frame.lane);
                Next::Forward
            }
            (Part::Reply(_) | Part::End, _) => self.answer(frame),
        }
    }

    fn ask(&self, frame: &Frame, arguments: &[Bytes]) -> Next {
        self.shared.tap().request(arguments);
        let rule = self.shared.rule_for(Sender::Client, arguments);
        let arguments = arguments.to_vec();
        let (asked, next) = match rule {
            Some(rule) if rule.action == Action::Cut => {
                self.shared.tell("cuts the connection, and the request goes nowhere");
                rule.see();
                return Next::Cut;
            }
            Some(rule) if rule.action == Action::HoldRequest => {
                self.shared.tell("holds the request");
                rule.see();
                (Asked { arguments, rule: None, _late: Some(self.late.subscribe()) }, Next::Hold(rule))
            }
            rule => (Asked { arguments, rule, _late: None }, Next::Forward),
        };
        lock(&self.dialogue).asked(frame, asked);
        next
    }

    fn answer(&self, frame: &Frame) -> Next {
        let reply = lock(&self.dialogue).answered(frame).unwrap_or_else(|error| self.not_understood(&error));
        let rule = match reply {
            Reply::To(Asked { arguments, rule, .. }) => {
                if let Part::Reply(says) = &frame.part {
                    self.shared.tap().tell(|| Message::Reply { to: arguments, says: says.clone() });
                }
                rule
            }
            Reply::Push(words) => {
                self.shared.tap().tell(|| Message::Push(words.clone()));
                self.shared.rule_for(Sender::Server, &words)
            }
            Reply::Further => None,
        };
        let Some(rule) = rule else { return Next::Forward };
        match rule.action {
            Action::HoldReply => {
                self.shared.tell("holds what the server says");
                rule.see();
                Next::Hold(rule)
            }
            Action::LoseReply if !rule.is_released() => {
                self.shared.tell("loses what the server says, and cuts the connection");
                rule.see();
                Next::Cut
            }
            Action::HoldRequest | Action::LoseReply | Action::Cut => Next::Forward,
        }
    }

    fn not_understood(&self, error: &io::Error) -> ! {
        let kind = self.shared.kind;
        panic!("{error}; a proxy for anything but plain {kind:?} is started with `start_opaque`")
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

/// A frame that waits for its fault to be released, and what has come behind it on its lane.
struct Held {
    frame: Frame,
    released: Pin<Box<dyn Future<Output = ()> + Send>>,
    behind: VecDeque<Frame>,
}

impl Held {
    fn new(frame: Frame, rule: Arc<Rule>) -> Self {
        Self { frame, released: Box::pin(async move { rule.released().await }), behind: VecDeque::new() }
    }
}

/// Takes out what is released; waits for ever where nothing is held.
async fn first_released(held: &mut Vec<Held>) -> Held {
    let place = poll_fn(|context| {
        let place = held.iter_mut().position(|held| held.released.as_mut().poll(context).is_ready());
        place.map_or(Poll::Pending, Poll::Ready)
    });
    let place = place.await;
    held.swap_remove(place)
}

/// What becomes of a frame.
enum Next {
    Forward,
    Hold(Arc<Rule>),
    Cut,
}

/// Reads more; false at the end of the stream. A connection that was reset has ended, too.
async fn read_more(from: &mut ReadHalf<'_>, received: &mut BytesMut) -> bool {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
