//! Names of nodes: a key is one segment of a path, and no two keys are the same one.

use std::fmt::Write as _;

use lock_core::LockKey;

/// What may stand in a segment as it is, besides letters, digits and a dot that does not lead.
///
/// `ZooKeeper` refuses control characters and much beyond ASCII, and reads `/`, `.` and `..` as a path does. The client lets
/// characters beyond the basic plane pass that the server refuses, so everything beyond ASCII is escaped.
const PLAIN: &[u8] = b"-_~:@+=,;!";

/// The segment of a key: every byte that is not plain is written `%XX`. 512 bytes become 1,536 at most.
pub(crate) fn segment(key: &LockKey) -> String {
    let mut segment = String::with_capacity(key.as_str().len());
    for byte in key.as_str().bytes() {
        // A segment of dots alone would be a relative path, so a leading dot never stays.
        let plain = byte.is_ascii_alphanumeric() || PLAIN.contains(&byte) || (byte == b'.' && !segment.is_empty());
        if plain {
            segment.push(char::from(byte));
        } else {
            write!(segment, "%{byte:02X}").expect("a string takes every text");
        }
    }
    segment
}

/// The key of a segment; none if no key has this segment.
pub(crate) fn key(found: &str) -> Option<LockKey> {
    let mut bytes = Vec::with_capacity(found.len());
    let mut rest = found.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    let key = LockKey::new(String::from_utf8(bytes).ok()?).ok()?;
    // Another program may write the same bytes in another way.
    (segment(&key) == found).then_some(key)
}

/// What is wrong with a prefix, if anything is.
pub(crate) fn prefix_fault(prefix: &str) -> Option<&'static str> {
    let segments = match prefix.strip_prefix('/') {
        None if prefix.is_empty() => return None,
        None => return Some("it must begin with `/`"),
        Some(segments) => segments,
    };
    if segments.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return Some("it has an empty or relative part; write it as `/a/b`");
    }
    let plain = |byte: u8| {
        byte == b'/' || byte == b'%' || byte == b'.' || byte.is_ascii_alphanumeric() || PLAIN.contains(&byte)
    };
    (!segments.bytes().all(plain)).then_some("it has characters other than letters, digits and `-_~:@+=,;!%.`")
}

/// The last part of a path.
pub(crate) fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::hostile::hostile_keys;

    #[test]
    fn hostile_keys_map_one_to_one_to_legal_segments() {
        let hostile = hostile_keys();
        assert_eq!(hostile.len(), 24);
        let mut seen = HashMap::new();
        for original in hostile {
            let segment = segment(&original);
            assert!(!segment.starts_with('.') && !segment.contains('/') && segment.is_ascii(), "{segment}");
            assert!(segment.len() <= 1_536);
            assert_eq!(key(&segment).as_ref(), Some(&original));
            assert_eq!(seen.insert(segment, original), None);
        }
    }

    #[test]
    fn a_segment_that_no_key_has_is_no_key() {
        for foreign in ["%2f", "%41", "%", "%2", "%GG", "a b", "%FF", "", ".a", "%0A", "%é"] {
            assert_eq!(key(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn prefixes_are_absolute_paths_or_empty() {
        for good in ["", "/hasp", "/a/b", "/a.b"] {
            assert_eq!(prefix_fault(good), None, "{good}");
        }
        for bad in ["hasp", "/", "/a/", "//a", "/a/../b", "/./a", "/a b", "/é"] {
            assert!(prefix_fault(bad).is_some(), "{bad}");
        }
    }
}
