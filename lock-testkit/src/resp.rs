//! Where one RESP frame ends and what a request says: as much of the protocol as a proxy and an admin connection need.
//!
//! Source: redis.io, "Redis serialization protocol specification" (RESP2 and RESP3, without streamed types, which no server
//! sends).

use std::io;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

/// Takes the first whole frame off `buffer`, as it came.
pub(crate) fn split_frame(buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
    Ok(frame_len(buffer)?.map(|length| buffer.split_to(length).freeze()))
}

/// The arguments of a request frame: an array of bulk strings, or one line of words (an "inline command").
pub(crate) fn arguments(frame: &Bytes) -> io::Result<Vec<Bytes>> {
    if frame.first() != Some(&b'*') {
        let words = frame.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        return Ok(words.map(|word| frame.slice_ref(word)).collect());
    }
    Ok(bulk_strings(frame)?.unwrap_or_default())
}

/// The elements of an array or push whose first ones are bulk strings: as many as are. `None` for any other frame.
pub(crate) fn bulk_strings(frame: &Bytes) -> io::Result<Option<Vec<Bytes>>> {
    if !matches!(frame.first(), Some(b'*' | b'>')) {
        return Ok(None);
    }
    let mut rest = frame.clone();
    let Some(header) = line(&rest) else { return Ok(None) };
    rest.advance(header.end + 2);
    let mut strings = Vec::new();
    while rest.first() == Some(&b'$') {
        let Some(header) = line(&rest) else { break };
        let Ok(length) = usize::try_from(integer(&rest[header.clone()])?) else { break };
        let start = header.end + 2;
        strings.push(rest.slice(start..start + length));
        rest.advance(start + length + 2);
    }
    Ok(Some(strings))
}

/// How many bytes the first frame of `bytes` has; `None` if it is not all there yet.
fn frame_len(bytes: &[u8]) -> io::Result<Option<usize>> {
    let mut at = 0;
    let mut values_due = 1_u64;
    while values_due > 0 {
        let Some(&kind) = bytes.get(at) else { return Ok(None) };
        let Some(header) = line(&bytes[at..]) else { return Ok(None) };
        let text = &bytes[at..][header.clone()];
        at += header.end + 2;
        values_due -= 1;
        match kind {
            b'$' | b'!' | b'=' => {
                if let Ok(length) = usize::try_from(integer(text)?) {
                    at += length + 2;
                }
            }
            b'*' | b'~' | b'>' => values_due += u64::try_from(integer(text)?).unwrap_or(0),
            b'%' => values_due += 2 * u64::try_from(integer(text)?).unwrap_or(0),
            // Attributes stand before the value that they belong to.
            b'|' => values_due += 2 * u64::try_from(integer(text)?).unwrap_or(0) + 1,
            // Every other type is one line, and so is an inline command.
            _ => {}
        }
        if at > bytes.len() {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

/// The first line without its type byte and its end.
fn line(bytes: &[u8]) -> Option<Range<usize>> {
    bytes.windows(2).position(|pair| pair == b"\r\n").map(|end| 1.min(end)..end)
}

fn integer(text: &[u8]) -> io::Result<i64> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| {
        let says = format!("`{}` is not a length: this is not RESP", text.escape_ascii());
        io::Error::new(io::ErrorKind::InvalidData, says)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: &[&[u8]] = &[
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":12\r\n",
        b"$5\r\nab\r\nc\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
        b"%1\r\n+a\r\n*0\r\n",
        b"~2\r\n:1\r\n:2\r\n",
        b"|1\r\n+ttl\r\n:3\r\n*1\r\n:4\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n",
        b"PING\r\n",
    ];

    #[test]
    fn frames_end_where_they_end_however_they_arrive() {
        let mut stream = BytesMut::new();
        let mut frames = Vec::new();
        for byte in FRAMES.concat() {
            stream.extend_from_slice(&[byte]);
            frames.extend(split_frame(&mut stream).unwrap());
        }
        assert_eq!(frames, FRAMES);
        assert!(stream.is_empty());
    }

    #[test]
    fn a_request_is_its_arguments() {
        for request in [&b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n"[..], b"*2\r\n$3\r\nGET\r\n$3\r\na b\r\n"] {
            let words = arguments(&Bytes::from_static(request)).unwrap();
            assert_eq!((words.len(), &words[0][..]), (2, &b"GET"[..]));
            assert_eq!(words[1].len(), 3);
        }
        assert_eq!(arguments(&Bytes::from_static(b"GET  a\r\n")).unwrap(), ["GET", "a"]);
    }

    #[test]
    fn bytes_that_are_no_frame_are_an_error() {
        let error = split_frame(&mut BytesMut::from(&b"*x\r\n"[..])).unwrap_err();
        assert!(error.to_string().contains("`x` is not a length"), "{error}");
    }

    #[test]
    fn strings_stop_at_the_first_other_element() {
        let frame = Bytes::from_static(b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
        assert_eq!(bulk_strings(&frame).unwrap().unwrap(), ["subscribe", "c"]);
        assert_eq!(bulk_strings(&Bytes::from_static(b"+OK\r\n")).unwrap(), None);
    }
}
