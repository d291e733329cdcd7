use std::collections::VecDeque;
use std::io;

use bytes::{Buf, Bytes, BytesMut};

use super::{Frame, Part, Protocol, Reply, invalid};
use crate::fault::Direction;

/// The longest frame that is believed. A server takes 1 MB unless told otherwise (`jute.maxbuffer`), and the first four
/// letters of another protocol, read as a length, are far more.
const LONGEST: usize = 64 << 20;

/// The number of a reply that is none, but the notification of a watch.
const NOTIFICATION: i32 = -1;

/// `ZooKeeper`'s protocol. Each frame has its length before it. The first one each way makes the session; then a request
/// begins with its number (`xid`) and the code of its operation, and a reply with the number of the request.
///
/// Source: `zookeeper.jute` and `ZooDefs.OpCode` of `ZooKeeper` 3.8.
#[derive(Debug)]
pub(super) struct ZooKeeper<T> {
    has_begun: [bool; 2],
    due: VecDeque<(Number, T)>,
}

/// Which request it is. Those of the client's own making (pings, credentials) share one number each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Connect,
    Xid(i32),
}

impl<T> ZooKeeper<T> {
    pub(super) fn new() -> Self {
        Self { has_begun: [false; 2], due: VecDeque::new() }
    }
}

impl<T: Send> Protocol<T> for ZooKeeper<T> {
    fn split(&mut self, direction: Direction, received: &mut BytesMut) -> io::Result<Option<Frame>> {
        let Some(head) = received.first_chunk() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*head)).expect("usize has 32 bits and more");
        if length > LONGEST {
            return Err(invalid(format!("a frame of {length} bytes: this is not ZooKeeper's protocol")));
        }
        if received.len() < 4 + length {
            return Ok(None);
        }
        let bytes = received.split_to(4 + length).freeze();
        let is_first = !std::mem::replace(&mut self.has_begun[direction as usize], true);
        let body = bytes.slice(4..);
        let part = match (direction, is_first) {
            (Direction::ToServer, true) => Part::Request(vec![Bytes::from_static(b"connect"), body]),
            (Direction::ToServer, false) => Part::Request(arguments(body)?),
            (Direction::ToClient, true) => Part::Reply(Bytes::new()),
            (Direction::ToClient, false) => Part::Reply(body),
        };
        Ok(Some(Frame { lane: 0, bytes, part }))
    }

    fn asked(&mut self, frame: &Frame, tag: T) {
        let Part::Request(arguments) = &frame.part else { return };
        let number =
            if arguments[0] == "connect" { Ok(Number::Connect) } else { xid(&frame.bytes[4..]).map(Number::Xid) };
        self.due.push_back((number.expect("a request was split off with its number"), tag));
    }

    fn answered(&mut self, frame: &Frame) -> io::Result<Reply<T>> {
        let Part::Reply(text) = &frame.part else { return Ok(Reply::Further) };
        let number = if text.is_empty() { Number::Connect } else { Number::Xid(xid(text)?) };
        if number == Number::Xid(NOTIFICATION) {
            return Ok(Reply::Push(notification(text)?));
        }
        let place = self.due.iter().position(|(due, _)| *due == number);
        Ok(place.and_then(|place| self.due.remove(place)).map_or(Reply::Further, |(_, tag)| Reply::To(tag)))
    }
}

/// The name of the operation, the path if it is for one, and all that follows the name.
fn arguments(mut body: Bytes) -> io::Result<Vec<Bytes>> {
    if body.len() < 8 {
        return Err(invalid(format!("a request of {} bytes: this is not ZooKeeper's protocol", body.len())));
    }
    body.advance(4);
    let code = body.get_i32();
    let (name, is_for_path) = operation(code).map_or((None, false), |(name, is_for_path)| (Some(name), is_for_path));
    let name = name.map_or_else(|| Bytes::from(code.to_string()), |name| Bytes::from_static(name.as_bytes()));
    let path = if is_for_path { string(&body) } else { None };
    Ok([Some(name), path, Some(body)].into_iter().flatten().collect())
}

/// What a watch tells: `notification`, the path, and all of it.
fn notification(text: &Bytes) -> io::Result<Vec<Bytes>> {
    // The number, zxid and error of every reply, then the kind of the event and the state of the session.
    const BEFORE_PATH: usize = 4 + 8 + 4 + 4 + 4;
    let event = (text.len() > BEFORE_PATH).then(|| text.slice(BEFORE_PATH..));
    let event = event.ok_or_else(|| invalid(format!("a notification of {} bytes", text.len())))?;
    let name = Bytes::from_static(b"notification");
    Ok([Some(name), string(&event), Some(text.slice(16..))].into_iter().flatten().collect())
}

/// The string that `body` begins with: its length, then its bytes.
fn string(body: &Bytes) -> Option<Bytes> {
    let length = usize::try_from(i32::from_be_bytes(*body.first_chunk()?)).ok()?;
    (body.len() >= 4 + length).then(|| body.slice(4..4 + length))
}

fn xid(body: &[u8]) -> io::Result<i32> {
    let head = body.first_chunk().ok_or_else(|| invalid(format!("a frame of {} bytes has no number", body.len())))?;
    Ok(i32::from_be_bytes(*head))
}

/// The name of an operation, and whether it begins with the path that it is for.
const fn operation(code: i32) -> Option<(&'static str, bool)> {
    Some(match code {
        1 => ("create", true),
        2 => ("delete", true),
        3 => ("exists", true),
        4 => ("getData", true),
        5 => ("setData", true),
        6 => ("getACL", true),
        7 => ("setACL", true),
        8 => ("getChildren", true),
        9 => ("sync", true),
        11 => ("ping", false),
        12 => ("getChildren2", true),
        13 => ("check", true),
        14 => ("multi", false),
        15 => ("create2", true),
        16 => ("reconfig", false),
        17 => ("checkWatches", true),
        18 => ("removeWatches", true),
        19 => ("createContainer", true),
        20 => ("deleteContainer", true),
        21 => ("createTTL", true),
        22 => ("multiRead", false),
        100 => ("auth", false),
        101 => ("setWatches", false),
        102 => ("sasl", false),
        103 => ("getEphemerals", true),
        104 => ("getAllChildrenNumber", true),
        105 => ("setWatches2", false),
        106 => ("addWatch", true),
        107 => ("whoAmI", false),
        -11 => ("closeSession", false),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(body: &[u8]) -> Vec<u8> {
        [&u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat()
    }

    fn request(xid: i32, code: i32, body: &[u8]) -> Vec<u8> {
        framed(&[&xid.to_be_bytes()[..], &code.to_be_bytes(), body].concat())
    }

    fn reply(xid: i32) -> Vec<u8> {
        framed(&[&xid.to_be_bytes()[..], &[0; 12]].concat())
    }

    /// What the frames in these bytes say, which come in pieces of this size.
    fn split(bytes: &[u8], direction: Direction, piece: usize) -> Vec<Frame> {
        let (mut received, mut frames, mut zookeeper) = (BytesMut::new(), Vec::new(), ZooKeeper::<()>::new());
        for piece in bytes.chunks(piece) {
            received.extend_from_slice(piece);
            while let Some(frame) = zookeeper.split(direction, &mut received).unwrap() {
                frames.push(frame);
            }
        }
        assert!(received.is_empty());
        frames
    }

    #[test]
    fn requests_say_what_they_are_for_wherever_the_bytes_are_cut() {
        let body = [&framed(b"/a")[..], b"rest"].concat();
        let bytes = [framed(&[0; 44]), request(1, 1, &body), request(-2, 11, b""), request(2, 99, b"x")].concat();
        for piece in 1..=bytes.len() {
            let frames = split(&bytes, Direction::ToServer, piece);
            let says: Vec<_> = frames
                .iter()
                .map(|frame| match &frame.part {
                    Part::Request(arguments) => arguments.clone(),
                    part => panic!("{part:?}"),
                })
                .collect();
            assert_eq!(says[0], [&b"connect"[..], &[0; 44]]);
            assert_eq!(says[1], [&b"create"[..], b"/a", &body]);
            assert_eq!((&says[2], &says[3]), (&vec!["ping".into(), Bytes::new()], &vec!["99".into(), "x".into()]));
            assert_eq!(frames.iter().flat_map(|frame| frame.bytes.clone()).collect::<Vec<_>>(), bytes);
        }
    }

    #[test]
    fn replies_go_by_their_numbers() {
        let mut zookeeper = ZooKeeper::new();
        let requests = [framed(&[0; 44]), request(-2, 11, b""), request(1, 3, &framed(b"/a")), request(-2, 11, b"")];
        for (tag, frame) in split(&requests.concat(), Direction::ToServer, 64).iter().enumerate() {
            zookeeper.asked(frame, tag);
        }
        let event = [&NOTIFICATION.to_be_bytes()[..], &[0; 12], &[0, 0, 0, 1, 0, 0, 0, 3], &framed(b"/a")].concat();
        let replies = [framed(&[0; 36]), reply(1), framed(&event), reply(-2), reply(-2), reply(7)].concat();
        let frames = split(&replies, Direction::ToClient, 64);
        let answers: Vec<_> = frames.iter().map(|frame| zookeeper.answered(frame).unwrap()).collect();
        let push = Reply::Push(vec!["notification".into(), "/a".into(), event[16..].to_vec().into()]);
        assert_eq!(answers, [Reply::To(0), Reply::To(2), push, Reply::To(1), Reply::To(3), Reply::Further]);
    }

    #[test]
    fn bytes_that_are_no_frame_are_an_error() {
        let split = |bytes: &[u8]| ZooKeeper::<()>::new().split(Direction::ToServer, &mut BytesMut::from(bytes));
        let error = split(b"ruok").unwrap_err();
        assert!(error.to_string().contains("not ZooKeeper's protocol"), "{error}");
        let mut short = BytesMut::from(&[framed(&[0; 44]), framed(b"ruok")].concat()[..]);
        let mut zookeeper = ZooKeeper::<()>::new();
        zookeeper.split(Direction::ToServer, &mut short).unwrap();
        assert!(zookeeper.split(Direction::ToServer, &mut short).is_err());
    }
}
