//! Faults of the network, on demand: a [`Proxy`] between a client and a server.

mod connection;
mod listener;
mod protocol;
mod request;
mod rule;
mod tap;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::connection::Shared;
use self::listener::{Listener, Order};
use self::protocol::Kind;
pub use self::request::Request;
use self::rule::Rule;
pub use self::rule::{Armed, When, WhenPushed};
pub use self::tap::Message;

/// A TCP proxy in front of a server, which can hold, lose, cut and delay what passes.
///
/// It understands the protocols of Redis ([`start`](Proxy::start)), etcd ([`start_etcd`](Proxy::start_etcd)) and `ZooKeeper`
/// ([`start_zookeeper`](Proxy::start_zookeeper)) well enough to pick requests by their arguments and to know whose reply a
/// reply is, or passes anything ([`start_opaque`](Proxy::start_opaque)). It runs on a thread of its own, so it goes on when the
/// runtime of a test is blocked. Its port stays the same for as long as it lives. Dropping it closes every connection.
///
/// All methods take effect before they return, and may be called from async code. Connections that are made through one
/// proxy share its faults; give each client a proxy of its own to cut one of them off.
///
/// # Examples
///
/// ```
/// use lock_testkit::RedisServer;
/// use lock_testkit::fault::{Proxy, Request};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = RedisServer::start()?;
/// let proxy = Proxy::start(server.addr())?;
/// let client = redis::Client::open(server.url_at(proxy.addr()))?;
/// let mut connection = client.get_multiplexed_async_connection().await?;
///
/// let lost = proxy.when(Request::command("INCR").with_argument("a")).lose_reply();
/// assert!(redis::cmd("INCR").arg("a").exec_async(&mut connection).await.is_err());
/// lost.seen().await;
/// // The client cannot know it, but its command was applied.
/// assert_eq!(server.command::<u64>(&["GET", "a"])?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    listener: Listener,
}

impl Proxy {
    /// Starts a proxy in front of the Redis at `server`.
    ///
    /// A request that is no RESP, or TLS, breaks its connection; for those there is [`start_opaque`](Proxy::start_opaque).
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub fn start(server: SocketAddr) -> io::Result<Self> {
        Self::start_with(Shared::new(server, Kind::Redis))
    }

    /// Starts a proxy in front of the etcd member at `server`.
    ///
    /// A request is one message of a client. Its command is the method that is called (`Txn`, `Range`, `Watch`, `LeaseGrant`,
    /// `LeaseKeepAlive`). Its arguments are the message as it is in protobuf, then each text and byte string in it at any
    /// depth, so [`with_argument`](Request::with_argument) finds a key and no longer one that begins with it. On a stream that
    /// takes many messages, the next message of the server, or the end of the stream, counts as the reply; one that comes when
    /// none is due is a push: the events of a watch, whose command is `Watch` too.
    ///
    /// A fault holds its own stream, and the other calls on the connection go on; losing and cutting end them all. Two things
    /// pass altered, to the same effect: header blocks without HPACK's compression, and messages each in frames of its own.
    ///
    /// What is no HTTP/2 breaks its connection: TLS, and etcd's gateway for JSON. A message that gRPC has compressed is passed,
    /// but its keys are not seen.
    ///
    /// # Errors
    ///
    /// If no port is free.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lock_testkit::EtcdCluster;
    /// use lock_testkit::fault::{Proxy, Request};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let etcd = EtcdCluster::start()?;
    /// let proxy = Proxy::start_etcd(etcd.member(0).addr())?;
    /// let mut client = etcd_client::Client::connect([format!("http://{}", proxy.addr())], None).await?;
    ///
    /// let lost = proxy.when(Request::command("Put").with_argument("a")).lose_reply();
    /// assert!(client.put("a", "1", None).await.is_err());
    /// lost.seen().await;
    /// assert_eq!(client.get("a", None).await?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_etcd(server: SocketAddr) -> io::Result<Self> {
        Self::start_with(Shared::new(server, Kind::Etcd))
    }

    /// Starts a proxy in front of the `ZooKeeper` member at `server`.
    ///
    /// A request's command is its operation as `ZooKeeper` names it (`create`, `create2`, `exists`, `getChildren2`, `multi`,
    /// `ping`, `closeSession`), or its code if the name is not known; `connect` is what makes or resumes a session. Its
    /// arguments are the path, for an operation on one, and then all that follows the code. A path goes without the number
    /// that `ZooKeeper` appends. The push is `notification`, with the path of the watch.
    ///
    /// What is not `ZooKeeper`'s binary protocol breaks its connection: TLS, and commands of four letters.
    ///
    /// # Errors
    ///
    /// If no port is free.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lock_testkit::ZooKeeperEnsemble;
    /// use lock_testkit::fault::{Proxy, Request};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let ensemble = ZooKeeperEnsemble::start(1)?;
    /// let proxy = Proxy::start_zookeeper(ensemble.addr(0))?;
    /// let client = zookeeper_client::Client::connect(&proxy.addr().to_string()).await?;
    ///
    /// let held = proxy.when(Request::command("exists").with_argument("/a")).hold_reply();
    /// let exists = tokio::spawn(client.check_stat("/a"));
    /// held.seen().await;
    /// assert!(!exists.is_finished());
    /// held.release();
    /// assert!(exists.await??.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_zookeeper(server: SocketAddr) -> io::Result<Self> {
        Self::start_with(Shared::new(server, Kind::ZooKeeper))
    }

    /// Starts a proxy that does not look at what passes, so [`when`](Proxy::when) and the counts have nothing to go by; the
    /// faults of whole connections work.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub fn start_opaque(server: SocketAddr) -> io::Result<Self> {
        Self::start_with(Shared::new(server, Kind::Opaque))
    }

    fn start_with(shared: Shared) -> io::Result<Self> {
        let shared = Arc::new(shared);
        let listener = Listener::start(Arc::clone(&shared))?;
        Ok(Self { shared, listener })
    }

    /// Where it listens, on 127.0.0.1.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.listener.addr()
    }

    /// The server that it leads to.
    #[must_use]
    pub fn server(&self) -> SocketAddr {
        self.shared.server()
    }

    /// Begins to describe a fault that is for the requests that match.
    ///
    /// # Examples
    ///
    /// A request that lands after its client has given up:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_testkit::RedisServer;
    /// # use lock_testkit::fault::{Proxy, Request};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = RedisServer::start()?;
    /// # let proxy = Proxy::start(server.addr())?;
    /// # let client = redis::Client::open(server.url_at(proxy.addr()))?;
    /// # let mut connection = client.get_multiplexed_async_connection().await?;
    /// let held = proxy.when(Request::command("SET").with_argument("a")).hold_request();
    /// let mut command = redis::cmd("SET");
    /// let set = command.arg("a").arg(1).exec_async(&mut connection);
    /// assert!(tokio::time::timeout(Duration::from_millis(20), set).await.is_err());
    /// drop(connection);
    /// assert_eq!(server.command::<u64>(&["EXISTS", "a"])?, 0);
    ///
    /// held.seen().await;
    /// held.release();
    /// while server.command::<u64>(&["EXISTS", "a"])? == 0 {
    ///     tokio::time::sleep(Duration::from_millis(1)).await;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn when(&self, request: Request) -> When<'_> {
        When { proxy: self, request, every_time: false }
    }

    /// Begins to describe a fault that is for the pushes that match: what a server sends unasked. A push has a command and
    /// arguments as a request has: of Redis the words of a message to a subscriber (`message`, the channel, the text); for
    /// the others see [`start_etcd`](Proxy::start_etcd) and [`start_zookeeper`](Proxy::start_zookeeper).
    pub fn when_pushed(&self, push: Request) -> WhenPushed<'_> {
        WhenPushed { proxy: self, push, every_time: false }
    }

    /// Lets nothing pass either way until [`heal`](Proxy::heal): what is sent hangs, and so do new connections. Nobody is
    /// told. What was under way passes when it heals, late, as TCP would send it again.
    pub fn black_hole(&self) {
        self.shared.set_open(false);
    }

    /// Ends [`black_hole`](Proxy::black_hole).
    pub fn heal(&self) {
        self.shared.set_open(true);
    }

    /// Cuts every connection now. New ones are accepted.
    pub fn cut_connections(&self) {
        self.shared.tell("cuts all connections");
        self.listener.order(Order::Cut).expect("cutting does not fail");
    }

    /// Refuses new connections until [`accept_connections`](Proxy::accept_connections). Those that exist go on.
    pub fn refuse_connections(&self) {
        self.shared.tell("refuses new connections");
        self.listener.order(Order::Refuse).expect("closing a listener does not fail");
    }

    /// Ends [`refuse_connections`](Proxy::refuse_connections), on the same port.
    ///
    /// # Errors
    ///
    /// If another process has taken the port meanwhile.
    pub fn accept_connections(&self) -> io::Result<()> {
        self.shared.tell("accepts new connections again");
        self.listener.order(Order::Accept)
    }

    /// Delays what goes in this direction by `delay`, however much it is: the connection gets slower to answer and no
    /// narrower. Zero ends it. The timer counts in milliseconds.
    pub fn set_delay(&self, direction: Direction, delay: Duration) {
        self.shared.tell(if delay.is_zero() { "delays no more" } else { "delays what passes" });
        self.shared.set_flow(direction, |flow| flow.delay = delay);
    }

    /// Sends what goes in this direction in segments of at most `bytes`, each flushed on its own and followed by `pause`
    /// (zero, or in milliseconds). `None` ends it.
    pub fn set_segments(&self, direction: Direction, segments: Option<Segments>) {
        self.shared.set_flow(direction, |flow| flow.segments = segments);
    }

    /// How many requests with this command have come, whatever became of them. Zero for an opaque proxy.
    #[must_use]
    pub fn count(&self, command: &str) -> u64 {
        self.shared.tap().counts().get(&command.to_ascii_uppercase()).copied().unwrap_or(0)
    }

    /// How many requests have come of each command, by its name in capitals.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.shared.tap().counts().clone()
    }

    /// The last 1,000 requests that have come, oldest first: the command and its arguments.
    #[must_use]
    pub fn recent(&self) -> Vec<Vec<Bytes>> {
        self.shared.tap().recent()
    }

    /// Has each message told to `listener` as it comes, before a fault holds or loses it, and each fault. There is one listener; another
    /// replaces it. It is called on the proxy's thread, so it must not block. An opaque proxy has no messages.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::mpsc::channel;
    /// # use lock_testkit::RedisServer;
    /// # use lock_testkit::fault::{Message, Proxy};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = RedisServer::start()?;
    /// let proxy = Proxy::start(server.addr())?;
    /// let (tell, told) = channel();
    /// proxy.listen(move |message| {
    ///     // Nobody is left to tell if the test is over.
    ///     let _ = tell.send(message.clone());
    /// });
    /// let mut connection = redis::Client::open(server.url_at(proxy.addr()))?.get_connection()?;
    /// redis::cmd("SET").arg("a").arg(1).exec(&mut connection)?;
    /// let answer = told.iter().find_map(|message| match message {
    ///     Message::Reply { to, says } if to[0] == "SET" => Some(says),
    ///     _ => None,
    /// });
    /// assert_eq!(answer.unwrap(), "+OK\r\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn listen(&self, listener: impl FnMut(&Message) + Send + 'static) {
        self.shared.tap().listen(Box::new(listener));
    }

    /// How many connections it has accepted.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.tap().connections()
    }

    fn add_rule(&self, rule: Arc<Rule>) {
        self.shared.add_rule(rule);
    }
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a connection has two directions")]
pub enum Direction {
    /// From the client: requests.
    ToServer,
    /// To the client: replies and pushes.
    ToClient,
}

/// How a stream is cut up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    bytes: usize,
    pause: Duration,
}

impl Segments {
    /// Segments of at most `bytes`, which is at least 1, without a pause.
    ///
    /// # Panics
    ///
    /// If `bytes` is zero.
    #[must_use]
    pub const fn of(bytes: usize) -> Self {
        assert!(bytes > 0, "a segment has at least one byte");
        Self { bytes, pause: Duration::ZERO }
    }

    /// The same with a pause behind each. The timer counts in milliseconds.
    #[must_use]
    pub const fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }
}
