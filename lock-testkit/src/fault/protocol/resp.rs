use std::collections::{HashSet, VecDeque};
use std::io;

use bytes::{Bytes, BytesMut};

use super::{Frame, Part, Protocol, Reply};
use crate::fault::Direction;
use crate::resp;

/// Redis's protocol.
///
/// Redis answers in order, so a reply belongs to the oldest request that waits for one. What a server sends unasked is set
/// apart: RESP3 marks it as a push, RESP2 sends it only to a subscriber. The subscribing commands have no reply but one
/// confirmation for each channel, which is a push in RESP3; here the first of them counts as the reply. CLIENT REPLY OFF
/// and SKIP are not understood.
///
/// `T` is what the caller wants to know again when the reply comes.
#[derive(Debug)]
pub(super) struct Resp<T> {
    due: VecDeque<Due<T>>,
    is_resp3: bool,
    /// The channels, patterns and sharded channels that are subscribed.
    subscribed: [HashSet<Bytes>; 3],
}

#[derive(Debug)]
struct Due<T> {
    tag: Option<T>,
    subscribing: Option<Subscribing>,
}

#[derive(Debug)]
struct Subscribing {
    verb: Verb,
    /// How many confirmations are still to come. Not known before the first one, where all is to be unsubscribed.
    confirmations: Option<usize>,
}

impl<T> Resp<T> {
    pub(super) fn new() -> Self {
        Self { due: VecDeque::new(), is_resp3: false, subscribed: Default::default() }
    }
}

impl<T: Send> Protocol<T> for Resp<T> {
    fn split(&mut self, direction: Direction, received: &mut BytesMut) -> io::Result<Option<Frame>> {
        let Some(bytes) = resp::split_frame(received)? else { return Ok(None) };
        let part = match direction {
            Direction::ToServer => Part::Request(resp::arguments(&bytes)?),
            Direction::ToClient => Part::Reply(bytes.clone()),
        };
        Ok(Some(Frame { lane: 0, bytes, part }))
    }

    fn asked(&mut self, frame: &Frame, tag: T) {
        let Part::Request(arguments) = &frame.part else { return };
        let subscribing = arguments.first().and_then(|name| Verb::parse(name)).map(|verb| Subscribing {
            verb,
            confirmations: Some(arguments.len() - 1).filter(|channels| *channels > 0),
        });
        self.due.push_back(Due { tag: Some(tag), subscribing });
    }

    fn answered(&mut self, frame: &Frame) -> io::Result<Reply<T>> {
        let frame = &frame.bytes;
        if let Some(words) = self.unasked(frame)? {
            return Ok(match words.first().and_then(|name| Verb::parse(name)) {
                Some(verb) => self.confirmed(verb, words.get(1)).map_or(Reply::Further, Reply::To),
                None => Reply::Push(words),
            });
        }
        match frame.first() {
            // What HELLO answers to 3; a map before it could only be a RESP3 reply, too.
            Some(b'%') => self.is_resp3 = true,
            _ if **frame == *b"+RESET\r\n" => {
                self.is_resp3 = false;
                self.subscribed = Default::default();
            }
            _ => {}
        }
        // MONITOR's lines come without a request.
        Ok(self.due.pop_front().and_then(|due| due.tag).map_or(Reply::Further, Reply::To))
    }

    fn drops_the_requests_of_the_gone(&self) -> bool {
        // Redis carries out what it has read before it looks at the end. Only a command that blocks is given up.
        false
    }
}

impl<T> Resp<T> {
    /// The words of a frame that is no reply to the oldest request.
    fn unasked(&self, frame: &Bytes) -> io::Result<Option<Vec<Bytes>>> {
        let is_subscriber = || {
            self.subscribed.iter().any(|names| !names.is_empty())
                || self.due.front().is_some_and(|due| due.subscribing.is_some())
        };
        match frame.first() {
            Some(b'>') => resp::bulk_strings(frame),
            Some(b'*') if !self.is_resp3 && is_subscriber() => {
                Ok(resp::bulk_strings(frame)?.filter(|words| words.first().is_some_and(|name| is_push_name(name))))
            }
            _ => Ok(None),
        }
    }

    /// One channel is subscribed or no longer so: the tag of the request that asked for it, if this is its first.
    fn confirmed(&mut self, verb: Verb, name: Option<&Bytes>) -> Option<T> {
        let names = &mut self.subscribed[verb.namespace];
        let before = names.len();
        if let Some(name) = name {
            if verb.is_adding {
                names.insert(Bytes::copy_from_slice(name));
            } else {
                names.remove(name);
            }
        }
        // An unasked one tells that the server has ended a subscription.
        let due = self.due.front_mut()?;
        let subscribing = due.subscribing.as_mut().filter(|subscribing| subscribing.verb == verb)?;
        // With nothing to unsubscribe, one confirmation says so.
        let confirmations = subscribing.confirmations.get_or_insert_with(|| before.max(1));
        *confirmations -= 1;
        let is_last = *confirmations == 0;
        let tag = due.tag.take();
        if is_last {
            self.due.pop_front();
        }
        tag
    }
}

/// One of the six subscribing commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verb {
    is_adding: bool,
    namespace: usize,
}

impl Verb {
    fn parse(name: &[u8]) -> Option<Self> {
        let (is_adding, namespace) = match name.to_ascii_lowercase().as_slice() {
            b"subscribe" => (true, 0),
            b"psubscribe" => (true, 1),
            b"ssubscribe" => (true, 2),
            b"unsubscribe" => (false, 0),
            b"punsubscribe" => (false, 1),
            b"sunsubscribe" => (false, 2),
            _ => return None,
        };
        Some(Self { is_adding, namespace })
    }
}

fn is_push_name(name: &[u8]) -> bool {
    matches!(name, b"message" | b"pmessage" | b"smessage") || Verb::parse(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells the frames of the server to a dialogue in which these requests were sent, numbered from 0.
    fn answers(requests: &[&str], frames: &[&'static str]) -> Vec<Option<usize>> {
        let mut dialogue = Resp::new();
        for (number, request) in requests.iter().enumerate() {
            let bytes = Bytes::from(format!("{request}\r\n"));
            dialogue.asked(&only(Direction::ToServer, &bytes), number);
        }
        let mut answer =
            |frame: &&'static str| match dialogue.answered(&only(Direction::ToClient, frame.as_bytes())).unwrap() {
                Reply::To(number) => Some(number),
                Reply::Push(_) | Reply::Further => None,
            };
        frames.iter().map(&mut answer).collect()
    }

    /// The one frame of these bytes.
    fn only(direction: Direction, bytes: &[u8]) -> Frame {
        Protocol::<usize>::split(&mut Resp::new(), direction, &mut BytesMut::from(bytes)).unwrap().unwrap()
    }

    #[test]
    fn replies_come_in_the_order_of_the_requests() {
        assert_eq!(answers(&["SET a 1", "GET a"], &["+OK\r\n", "$1\r\n1\r\n"]), [Some(0), Some(1)]);
    }

    #[test]
    fn a_push_is_no_reply() {
        let push = ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n";
        assert_eq!(answers(&["GET a"], &[push, "$1\r\n1\r\n", push]), [None, Some(0), None]);
    }

    #[test]
    fn the_first_confirmation_is_the_reply_and_the_others_are_not_the_next_one() {
        let confirm = [
            ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
            ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n",
            ">3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n",
            "$1\r\n1\r\n",
        ];
        assert_eq!(answers(&["SUBSCRIBE a b", "GET a"], &confirm), [Some(0), None, None, Some(1)]);
    }

    #[test]
    fn a_refused_subscription_is_one_reply() {
        assert_eq!(answers(&["SUBSCRIBE a b", "GET a"], &["-NOPERM\r\n", "_\r\n"]), [Some(0), Some(1)]);
    }

    #[test]
    fn unsubscribing_from_all_is_confirmed_once_for_each() {
        let frames = [
            "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
            "*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n",
            "*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n",
            "*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:0\r\n",
            "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n",
            "*1\r\n$7\r\nmessage\r\n",
        ];
        let requests = ["SUBSCRIBE a b", "UNSUBSCRIBE", "UNSUBSCRIBE", "LRANGE l 0 -1"];
        assert_eq!(answers(&requests, &frames), [Some(0), None, Some(1), None, Some(2), Some(3)]);
    }

    #[test]
    fn in_resp2_a_subscriber_is_told_by_arrays() {
        let frames = [
            "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
            "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n",
            "*2\r\n$4\r\npong\r\n$0\r\n\r\n",
        ];
        assert_eq!(answers(&["SUBSCRIBE a", "PING"], &frames), [Some(0), None, Some(1)]);
    }
}
