use std::collections::{HashMap, VecDeque};
use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use loona_hpack::Decoder;

use super::{Frame, Part, invalid};
use crate::fault::Direction;

/// What a client says first (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length, type, flags and stream (RFC 9113, section 4.1).
const HEAD: usize = 9;

/// The largest payload that every peer takes.
const PAYLOAD: usize = 16_384;

/// The most of a header block that is believed.
const LONGEST_BLOCK: usize = 1 << 20;

/// Types of frames, by RFC 9113, section 6. The others are passed on as they are.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;

/// Flags of frames.
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// One direction of an HTTP/2 connection that carries gRPC: finds the messages in it. A lane is a stream; lane 0 has what is
/// for the connection, and what may overtake (windows).
///
/// What is forwarded differs from what came in two ways, so that a stream can be held without the others. A DATA frame with
/// parts of two messages is sent as two. Header blocks are written anew without HPACK's table, because that is shared by all
/// streams and binds them to one order.
pub(super) struct Http2 {
    direction: Direction,
    preface_due: bool,
    hpack: Decoder<'static>,
    /// The header block whose end has not come.
    block: Option<Block>,
    streams: HashMap<u32, Stream>,
    /// What came in one frame and is sent as several.
    ready: VecDeque<Frame>,
}

struct Block {
    stream: u32,
    flags: u8,
    bytes: BytesMut,
}

/// A stream that has not ended in this direction.
#[derive(Default)]
struct Stream {
    /// The method that is called. Only a client names it.
    method: Bytes,
    /// As much of a message as has come, with its head.
    message: BytesMut,
}

impl Http2 {
    pub(super) fn new(direction: Direction) -> Self {
        Self {
            direction,
            preface_due: direction == Direction::ToServer,
            hpack: Decoder::new(),
            block: None,
            streams: HashMap::new(),
            ready: VecDeque::new(),
        }
    }

    pub(super) fn split(&mut self, received: &mut BytesMut) -> io::Result<Option<Frame>> {
        if self.preface_due {
            let length = received.len().min(PREFACE.len());
            if received[..length] != PREFACE[..length] {
                return Err(invalid("no preface has come: this is not HTTP/2".into()));
            }
            if length < PREFACE.len() {
                return Ok(None);
            }
            self.preface_due = false;
            return Ok(Some(other(0, received.split_to(length).freeze())));
        }
        while self.ready.is_empty() {
            let Some([a, b, c]) = received.first_chunk() else { break };
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            if received.len() < HEAD + length {
                break;
            }
            self.take(received.split_to(HEAD + length).freeze())?;
        }
        Ok(self.ready.pop_front())
    }

    /// Makes `ready` what is to be forwarded of a frame: of a header block nothing before its end has come.
    fn take(&mut self, bytes: Bytes) -> io::Result<()> {
        let (kind, flags) = (bytes[3], bytes[4]);
        let stream = u32::from_be_bytes([bytes[5] & 0x7f, bytes[6], bytes[7], bytes[8]]);
        let payload = bytes.slice(HEAD..);
        match kind {
            // Its sender counts the padding, so a receiver that never sees it would give back too little of the window.
            DATA if flags & PADDED != 0 => return Err(invalid("padded data cannot be proxied".into())),
            DATA => self.take_data(stream, flags, payload),
            HEADERS => {
                let (before, behind) = match payload.first() {
                    Some(padding) if flags & PADDED != 0 => (1, usize::from(*padding)),
                    _ => (0, 0),
                };
                // A priority is out of use, and not passed on.
                let before = before + if flags & PRIORITY != 0 { 5 } else { 0 };
                let end = payload.len().checked_sub(behind).filter(|end| before <= *end);
                let end = end.ok_or_else(|| invalid("a HEADERS frame is shorter than its padding".into()))?;
                self.block = Some(Block { stream, flags, bytes: BytesMut::new() });
                self.take_fragment(flags, &payload[before..end])?;
            }
            CONTINUATION => self.take_fragment(flags, &payload)?,
            PUSH_PROMISE => return Err(invalid("an etcd promises no pushes".into())),
            RST_STREAM => {
                self.streams.remove(&stream);
                self.ready.push_back(Frame { lane: stream, bytes, part: Part::End });
            }
            _ => self.ready.push_back(other(0, bytes)),
        }
        Ok(())
    }

    fn take_fragment(&mut self, flags: u8, fragment: &[u8]) -> io::Result<()> {
        let mut block = self.block.take().ok_or_else(|| invalid("a CONTINUATION frame continues nothing".into()))?;
        block.bytes.extend_from_slice(fragment);
        if block.bytes.len() > LONGEST_BLOCK {
            return Err(invalid(format!("a header block of more than {LONGEST_BLOCK} bytes")));
        }
        if flags & END_HEADERS == 0 {
            self.block = Some(block);
            return Ok(());
        }
        let fields = self.hpack.decode(&block.bytes).map_err(|error| invalid(format!("HPACK: {error:?}")))?;
        let has_ended = block.flags & END_STREAM != 0;
        let bytes = headers(block.stream, has_ended, &fields);
        if has_ended {
            self.streams.remove(&block.stream);
        } else {
            let stream = self.streams.entry(block.stream).or_default();
            if let Some((_, path)) = fields.iter().find(|(name, _)| name == b":path") {
                let method = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                stream.method = Bytes::copy_from_slice(method);
            }
        }
        let is_end = has_ended && self.direction == Direction::ToClient;
        let part = if is_end { Part::End } else { Part::Other };
        self.ready.push_back(Frame { lane: block.stream, bytes, part });
        Ok(())
    }

    /// Each message, or part of one, becomes a frame of its own.
    fn take_data(&mut self, id: u32, flags: u8, mut payload: Bytes) {
        let stream = self.streams.entry(id).or_default();
        loop {
            let (length, message) = stream.add(&payload);
            let piece = payload.split_to(length);
            let is_last = payload.is_empty();
            let part = match (message, self.direction) {
                (None, _) => Part::Other,
                (Some(message), Direction::ToServer) => Part::Request(vec![stream.method.clone(), message]),
                (Some(message), Direction::ToClient) => Part::Reply(message),
            };
            let flags = if is_last { flags } else { flags & !END_STREAM };
            let mut bytes = BytesMut::with_capacity(HEAD + piece.len());
            put(&mut bytes, DATA, flags, id, &piece);
            self.ready.push_back(Frame { lane: id, bytes: bytes.freeze(), part });
            if is_last {
                break;
            }
        }
        if flags & END_STREAM != 0 {
            self.streams.remove(&id);
        }
    }
}

impl Stream {
    /// Adds what belongs to the message under way: how much that is, and the message if it is whole. A message has a flag
    /// and its length before it.
    fn add(&mut self, bytes: &[u8]) -> (usize, Option<Bytes>) {
        const HEAD: usize = 5;
        let mut taken = 0;
        loop {
            let body =
                self.message.get(1..HEAD).map(|length| length.iter().fold(0, |n, byte| n << 8 | usize::from(*byte)));
            let due = HEAD + body.unwrap_or(0) - self.message.len();
            if due == 0 && body.is_some() {
                return (taken, Some(self.message.split().freeze().slice(HEAD..)));
            }
            let more = due.min(bytes.len() - taken);
            if more == 0 {
                return (taken, None);
            }
            self.message.extend_from_slice(&bytes[taken..taken + more]);
            taken += more;
        }
    }
}

fn other(lane: u32, bytes: Bytes) -> Frame {
    Frame { lane, bytes, part: Part::Other }
}

/// A header block that neither needs HPACK's dynamic table nor changes it: it sets the table's size to zero, and each field
/// is a literal that is never indexed (RFC 7541, sections 6.2.3 and 6.3).
fn headers(stream: u32, has_ended: bool, fields: &[(Vec<u8>, Vec<u8>)]) -> Bytes {
    let mut block = vec![0x20];
    for (name, value) in fields {
        block.push(0x10);
        for text in [name, value] {
            put_length(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    let mut bytes = BytesMut::with_capacity(block.len() + HEAD);
    let fragments = block.chunks(PAYLOAD);
    let last = fragments.len() - 1;
    for (place, fragment) in fragments.enumerate() {
        let (kind, end) = if place == 0 { (HEADERS, has_ended) } else { (CONTINUATION, false) };
        let flags = if end { END_STREAM } else { 0 } | if place == last { END_HEADERS } else { 0 };
        put(&mut bytes, kind, flags, stream, fragment);
    }
    bytes.freeze()
}

/// The length of a string without Huffman's code, as an integer with a prefix of seven bits (RFC 7541, section 5.1).
fn put_length(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(0x7f) else { return block.push(low_byte(length)) };
    block.push(0x7f);
    while rest >= 0x80 {
        block.push(low_byte(rest) | 0x80);
        rest >>= 7;
    }
    block.push(low_byte(rest));
}

const fn low_byte(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

fn put(bytes: &mut BytesMut, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    bytes.put_uint(u64::try_from(payload.len()).expect("a frame's length has 24 bits"), 3);
    bytes.put_slice(&[kind, flags]);
    bytes.put_u32(stream);
    bytes.put_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7541, appendix C.4: two requests in Huffman's code, the second of which needs the table that the first has made.
    const FIRST: &[u8] = b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
    const SECOND: &[u8] = b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf";

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> BytesMut {
        let mut bytes = BytesMut::new();
        put(&mut bytes, kind, flags, stream, payload);
        bytes
    }

    /// A message with its head.
    fn message(text: &[u8]) -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        [&[0][..], &length, text].concat()
    }

    /// A literal path, which goes into the table.
    fn path(path: &str) -> Vec<u8> {
        [&[0x44, u8::try_from(path.len()).unwrap()], path.as_bytes()].concat()
    }

    /// What a client says: two calls, one of them with several messages, in frames that fall elsewhere.
    fn dialogue() -> Vec<u8> {
        // Without the first one's own path.
        let txn = [&FIRST[..2], &FIRST[3..], &path("/etcdserverpb.KV/Txn")].concat();
        let messages = [message(b"one"), message(b""), message(b"two"), message(b"three")].concat();
        [
            &frame(4, 0, 0, b"")[..],
            // Padded by three bytes, with a priority, and continued.
            &frame(HEADERS, PADDED | PRIORITY, 1, &[&[3, 0, 0, 0, 0, 0], &txn[..7], &[0; 3]].concat()),
            &frame(CONTINUATION, END_HEADERS, 1, &txn[7..]),
            // The path by its place in the table.
            &frame(HEADERS, END_HEADERS, 3, b"\x82\x86\xbe"),
            &frame(DATA, 0, 1, &messages[..2]),
            &frame(8, 0, 1, &[0, 0, 0, 1]),
            &frame(DATA, END_STREAM, 3, &message(b"other")),
            &frame(DATA, 0, 1, &messages[2..20]),
            &frame(DATA, END_STREAM, 1, &messages[20..]),
            &frame(RST_STREAM, 0, 3, &[0, 0, 0, 8]),
        ]
        .concat()
    }

    /// What comes of these pieces: the frames that are requests or ends, and all that is forwarded.
    fn split<'a>(mut http2: Http2, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<(u32, Part)>, Vec<u8>) {
        let (mut received, mut parts, mut forwarded) = (BytesMut::new(), Vec::new(), Vec::new());
        for piece in pieces {
            received.extend_from_slice(piece);
            while let Some(frame) = http2.split(&mut received).unwrap() {
                forwarded.extend_from_slice(&frame.bytes);
                if frame.part != Part::Other {
                    parts.push((frame.lane, frame.part));
                }
            }
        }
        assert!(received.is_empty());
        (parts, forwarded)
    }

    #[test]
    fn requests_are_found_wherever_the_bytes_are_cut() {
        let request = |lane, text: &'static str| (lane, Part::Request(vec!["Txn".into(), text.into()]));
        let expected = [
            request(3, "other"),
            request(1, "one"),
            request(1, ""),
            request(1, "two"),
            request(1, "three"),
            (3, Part::End),
        ];
        let bytes = [PREFACE, &dialogue()].concat();
        for cut in 0..=bytes.len() {
            let (before, behind) = bytes.split_at(cut);
            assert_eq!(split(Http2::new(Direction::ToServer), [before, behind]).0, expected, "cut at {cut}");
        }
        let (parts, forwarded) = split(Http2::new(Direction::ToServer), bytes.chunks(1));
        assert_eq!(parts, expected);
        assert_eq!(split(Http2::new(Direction::ToServer), [&forwarded[..]]).0, expected, "it forwards the same");
    }

    #[test]
    fn replies_and_the_ends_of_calls_are_found() {
        let bytes = [
            &frame(HEADERS, END_HEADERS, 1, b"\x88")[..],
            &frame(DATA, 0, 1, &message(b"reply")),
            &frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x88"),
            &frame(HEADERS, END_HEADERS | END_STREAM, 3, b"\x88"),
        ]
        .concat();
        let parts = split(Http2::new(Direction::ToClient), bytes.chunks(1)).0;
        assert_eq!(parts, [(1, Part::Reply("reply".into())), (1, Part::End), (3, Part::End)]);
    }

    #[test]
    fn header_blocks_may_be_forwarded_in_any_order() {
        let mut http2 = Http2::new(Direction::ToClient);
        let mut received = BytesMut::new();
        for (stream, block) in [(1, FIRST), (3, SECOND)] {
            received.unsplit(frame(HEADERS, END_HEADERS, stream, block));
        }
        let [first, second] = [(); 2].map(|()| http2.split(&mut received).unwrap().unwrap().bytes);
        let mut decoder = Decoder::new();
        for (bytes, fields) in [(second, 5), (first, 4)] {
            let decoded = decoder.decode(&bytes[HEAD..]).unwrap();
            assert_eq!(decoded.len(), fields);
            assert_eq!(decoded[3], (b":authority".to_vec(), b"www.example.com".to_vec()));
        }
    }

    #[test]
    fn long_fields_are_written_in_legal_frames() {
        for length in [0, 126, 127, 128, 254, 255, 256, 16_383, 16_384, 40_000] {
            let field = (b"name".to_vec(), vec![b'v'; length]);
            let bytes = headers(1, true, std::slice::from_ref(&field));
            let (mut rest, mut block, mut flags) = (&bytes[..], Vec::new(), Vec::new());
            while let Some(head) = rest.get(..HEAD) {
                let end = HEAD + usize::from(head[1]) * 256 + usize::from(head[2]);
                assert!(end <= HEAD + PAYLOAD);
                flags.push((head[3], head[4] & END_STREAM != 0, head[4] & END_HEADERS != 0));
                block.extend_from_slice(&rest[HEAD..end]);
                rest = &rest[end..];
            }
            assert_eq!(Decoder::new().decode(&block).unwrap(), [field]);
            for (place, (kind, ends_stream, ends_headers)) in flags.iter().enumerate() {
                assert_eq!((*kind == HEADERS, *ends_stream), (place == 0, place == 0));
                assert_eq!(*ends_headers, place == flags.len() - 1);
            }
        }
    }

    #[test]
    fn bytes_that_are_no_http2_are_an_error() {
        let mut received = BytesMut::from("POST /v3/kv/put HTTP/1.1\r\n");
        let error = Http2::new(Direction::ToServer).split(&mut received).unwrap_err();
        assert!(error.to_string().contains("this is not HTTP/2"), "{error}");
        for broken in [
            frame(CONTINUATION, END_HEADERS, 1, b"\x88"),
            frame(HEADERS, END_HEADERS | PADDED, 1, b"\x09\x88"),
            frame(HEADERS, END_HEADERS, 1, b"\xff"),
            frame(DATA, PADDED, 1, b"\0"),
        ] {
            assert!(Http2::new(Direction::ToClient).split(&mut broken.clone()).is_err(), "{broken:?}");
        }
    }
}
