use std::collections::{HashMap, VecDeque};
use std::io;

use bytes::{Bytes, BytesMut};

use super::http2::Http2;
use super::{Frame, Part, Protocol, Reply};
use crate::fault::Direction;

/// How deep messages may lie in each other; a transaction in a transaction has its key at a depth of five.
const DEPTH: usize = 8;

/// etcd's protocol: gRPC over HTTP/2. Each message of a client is a request, also on a stream that takes many; the next
/// message on its stream, or the end of that, is taken for its reply. A message that comes when none is due is a push.
pub(super) struct Etcd<T> {
    to_server: Http2,
    to_client: Http2,
    /// By stream.
    calls: HashMap<u32, Call<T>>,
}

struct Call<T> {
    method: Bytes,
    due: VecDeque<T>,
}

impl<T> Etcd<T> {
    pub(super) fn new() -> Self {
        let [to_server, to_client] = [Direction::ToServer, Direction::ToClient].map(Http2::new);
        Self { to_server, to_client, calls: HashMap::new() }
    }
}

impl<T: Send> Protocol<T> for Etcd<T> {
    fn split(&mut self, direction: Direction, received: &mut BytesMut) -> io::Result<Option<Frame>> {
        let Some(mut frame) = (match direction {
            Direction::ToServer => self.to_server.split(received)?,
            Direction::ToClient => self.to_client.split(received)?,
        }) else {
            return Ok(None);
        };
        if let Part::Request(arguments) = &mut frame.part {
            let message = arguments[1].clone();
            add_fields(&message, DEPTH, arguments);
        }
        Ok(Some(frame))
    }

    fn asked(&mut self, frame: &Frame, tag: T) {
        let Part::Request(arguments) = &frame.part else { return };
        let new = || Call { method: arguments[0].clone(), due: VecDeque::new() };
        self.calls.entry(frame.lane).or_insert_with(new).due.push_back(tag);
    }

    fn answered(&mut self, frame: &Frame) -> io::Result<Reply<T>> {
        if frame.part == Part::End {
            let call = self.calls.remove(&frame.lane);
            return Ok(call.and_then(|mut call| call.due.pop_front()).map_or(Reply::Further, Reply::To));
        }
        let (Part::Reply(message), Some(call)) = (&frame.part, self.calls.get_mut(&frame.lane)) else {
            return Ok(Reply::Further);
        };
        if let Some(tag) = call.due.pop_front() {
            return Ok(Reply::To(tag));
        }
        let mut words = vec![call.method.clone(), message.clone()];
        add_fields(message, DEPTH, &mut words);
        Ok(Reply::Push(words))
    }

    fn abandoned(&mut self, lane: u32) {
        self.calls.remove(&lane);
    }
}

/// Adds the texts and byte strings in a protobuf message, at any depth. Without the schema a text cannot be told from a
/// message, so what could be either is both. If it is no message, nothing is added.
fn add_fields(message: &Bytes, depth: usize, found: &mut Vec<Bytes>) {
    let before = found.len();
    if depth > 0 && try_add_fields(message, depth, found).is_none() {
        found.truncate(before);
    }
}

fn try_add_fields(message: &Bytes, depth: usize, found: &mut Vec<Bytes>) -> Option<()> {
    let mut at = 0;
    while at < message.len() {
        let key = varint(message, &mut at)?;
        // No field has the number 0.
        if key >> 3 == 0 {
            return None;
        }
        match key & 7 {
            0 => drop(varint(message, &mut at)?),
            1 => at += 8,
            2 => {
                let length = usize::try_from(varint(message, &mut at)?).ok()?;
                let end = at.checked_add(length).filter(|end| *end <= message.len())?;
                let field = message.slice(at..end);
                at = end;
                found.push(field.clone());
                add_fields(&field, depth - 1, found);
            }
            5 => at += 4,
            _ => return None,
        }
    }
    (at == message.len()).then_some(())
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message: &[u8]) -> Vec<Bytes> {
        let mut found = Vec::new();
        add_fields(&Bytes::copy_from_slice(message), DEPTH, &mut found);
        found
    }

    fn field(number: u8, text: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(text.len()).unwrap()], text].concat()
    }

    #[test]
    fn keys_are_found_at_any_depth_and_whole() {
        // A transaction: compare the version of a key, then put it.
        let compare = field(1, &[&[0x10, 0][..], &field(3, b"lock/a"), &[0x20, 0]].concat());
        let put = field(2, &field(2, &[field(1, b"lock/a"), field(2, b"owner"), vec![0x18, 0xff, 1]].concat()));
        let found = fields(&[compare, put].concat());
        assert_eq!(found.iter().filter(|text| **text == "lock/a").count(), 2);
        assert!(found.contains(&Bytes::from("owner")));
        assert!(!found.contains(&Bytes::from("lock")));
    }

    #[test]
    fn bytes_that_are_no_message_have_no_fields() {
        // A field that is cut short, the number 0, groups, and a varint without an end.
        for broken in [&b"\x0a\x01a\x0a\x05abc"[..], b"\x02\x01a", b"\x0b", b"\x08\xff\xff", &[0xff; 20], b"\x09abc"] {
            assert_eq!(fields(broken), [""; 0], "{broken:?}");
        }
        assert_eq!(fields(b""), [""; 0]);
    }

    #[test]
    fn the_next_message_on_a_stream_is_the_reply_and_a_further_one_is_a_push() {
        let frame = |lane, part| Frame { lane, bytes: Bytes::new(), part };
        let request = |lane| frame(lane, Part::Request(vec!["Watch".into(), Bytes::new()]));
        let reply = |lane| frame(lane, Part::Reply(Bytes::from(field(1, b"k"))));
        let mut etcd = Etcd::new();
        etcd.asked(&request(1), "a");
        etcd.asked(&request(3), "b");
        etcd.asked(&request(1), "c");
        etcd.asked(&request(5), "d");
        let push = Reply::Push(vec!["Watch".into(), field(1, b"k").into(), "k".into()]);
        assert_eq!(etcd.answered(&reply(3)).unwrap(), Reply::To("b"));
        assert_eq!(etcd.answered(&reply(3)).unwrap(), push);
        assert_eq!(etcd.answered(&reply(1)).unwrap(), Reply::To("a"));
        assert_eq!(etcd.answered(&frame(1, Part::End)).unwrap(), Reply::To("c"));
        assert_eq!(etcd.answered(&frame(3, Part::End)).unwrap(), Reply::Further);
        etcd.abandoned(5);
        assert_eq!(etcd.answered(&reply(5)).unwrap(), Reply::Further);
        assert!(etcd.calls.is_empty());
    }
}
