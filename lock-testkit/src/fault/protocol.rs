mod etcd;
mod http2;
mod opaque;
mod resp;
mod zookeeper;

use std::io;

use bytes::{Bytes, BytesMut};

use self::etcd::Etcd;
use self::opaque::Opaque;
use self::resp::Resp;
use self::zookeeper::ZooKeeper;
use super::Direction;

/// What a proxy must know of a protocol, on one connection: where a frame ends, and which reply belongs to which request.
/// No I/O: it is told every frame, each way in order.
///
/// `T` is what the caller wants to know again when the reply comes.
pub(super) trait Protocol<T>: Send {
    /// Takes the first whole frame off what has come in this direction.
    fn split(&mut self, direction: Direction, received: &mut BytesMut) -> io::Result<Option<Frame>>;

    /// A frame with a request goes to the server.
    fn asked(&mut self, frame: &Frame, tag: T);

    /// Whose reply a frame from the server is, which has a reply or ends its lane.
    fn answered(&mut self, frame: &Frame) -> io::Result<Reply<T>>;

    /// The client has given up a lane.
    fn abandoned(&mut self, _lane: u32) {}

    /// Whether the server may drop a request that it has read when it learns that the client has gone.
    fn drops_the_requests_of_the_gone(&self) -> bool {
        true
    }
}

/// What is forwarded as one piece.
#[derive(Debug)]
pub(super) struct Frame {
    /// Frames of one lane stay in order, and one that is held holds those behind it. Lanes do not wait for each other.
    pub(super) lane: u32,
    pub(super) bytes: Bytes,
    pub(super) part: Part,
}

/// What a frame is in the dialogue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Nothing that a fault could be for.
    Other,
    /// A request, or the last piece of it: the command and its arguments.
    Request(Vec<Bytes>),
    /// A reply or a push, or the last piece of it: what it says.
    Reply(Bytes),
    /// The end of the lane: ended by the server, or given up by the client.
    End,
}

/// What comes from the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply<T> {
    /// The reply, or the first part of the reply, to the request with this tag.
    To(T),
    /// What nobody asked for: its name, and what it says.
    Push(Vec<Bytes>),
    /// A further part of a reply that has begun.
    Further,
}

/// The protocols that there are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Opaque,
    Redis,
    Etcd,
    ZooKeeper,
}

impl Kind {
    /// For a new connection.
    pub(super) fn begin<T: Send + 'static>(self) -> Box<dyn Protocol<T>> {
        match self {
            Self::Opaque => Box::new(Opaque),
            Self::Redis => Box::new(Resp::new()),
            Self::Etcd => Box::new(Etcd::new()),
            Self::ZooKeeper => Box::new(ZooKeeper::new()),
        }
    }
}

fn invalid(says: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, says)
}
