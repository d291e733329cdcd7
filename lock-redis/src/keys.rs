//! Names of the keys that belong to a lock, and the cluster slot that they share.

use std::borrow::Cow;
use std::sync::LazyLock;

use lock_core::Claim;

/// A key or channel of the same lock as `key`: `namespace:{tag}`, where the tag puts it into the slot of `key`.
///
/// Two keys never share a sibling: with a brace in `key`, the whole key follows the tag.
pub(crate) fn sibling(namespace: &str, key: &str) -> String {
    if key.bytes().any(|byte| matches!(byte, b'{' | b'}')) {
        joined(&[namespace, ":{", &tag(key), "}:", key])
    } else {
        joined(&[namespace, ":{", key, "}"])
    }
}

/// The parts as one text; a lock's names are made for every request, and `format!` takes several times as long.
pub(crate) fn joined(parts: &[&str]) -> String {
    let mut text = String::with_capacity(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        text.push_str(part);
    }
    text
}

/// The id of a claim as 32 hex digits, and behind a colon its label if it has one.
pub(crate) fn of_claim(claim: &Claim) -> String {
    let label = claim.label.as_deref();
    let mut text = String::with_capacity(32 + label.map_or(0, |label| 1 + label.len()));
    push_hex(&mut text, claim.id.bits());
    if let Some(label) = label {
        text.push(':');
        text.push_str(label);
    }
    text
}

/// Appends 32 hex digits.
pub(crate) fn push_hex(text: &mut String, bits: u128) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 32];
    for (two, byte) in digits.chunks_exact_mut(2).zip(bits.to_be_bytes()) {
        two[0] = DIGITS[usize::from(byte >> 4)];
        two[1] = DIGITS[usize::from(byte & 15)];
    }
    text.push_str(std::str::from_utf8(&digits).expect("digits are ASCII"));
}

/// The key that [`sibling`] made this of.
pub(crate) fn of_sibling<'a>(namespace: &str, sibling: &'a str) -> Option<&'a str> {
    let tagged = sibling.strip_prefix(namespace)?.strip_prefix(":{")?;
    let (tag, rest) = tagged.split_once('}')?;
    if rest.is_empty() { Some(tag) } else { rest.strip_prefix(':') }
}

/// Redisson's rule for a derived name: braces around the lock's name, unless it has an opening one already.
pub(crate) fn redisson(namespace: &str, key: &str) -> String {
    if key.contains('{') { joined(&[namespace, ":", key]) } else { joined(&[namespace, ":{", key, "}"]) }
}

/// Text which, in braces, is a hash tag for the slot of `key`.
fn tag(key: &str) -> Cow<'_, str> {
    let hashed = hashed(key);
    if hashed.contains('}') {
        // No hash tag can hold a closing brace, so another text of the same slot stands in.
        return Cow::Owned(STAND_INS[usize::from(slot(key))].to_string());
    }
    Cow::Borrowed(hashed)
}

/// The part of `key` that Redis Cluster hashes: what is between the first `{` and the next `}`, or all of it
/// (redis.io, "Redis cluster specification", hash tags).
fn hashed(key: &str) -> &str {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

const SLOTS: u16 = 16_384;

/// The cluster slot of a key.
pub(crate) fn slot(key: &str) -> u16 {
    // CRC-16/XMODEM: polynomial 0x1021, starting at zero.
    let crc = hashed(key).bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
    });
    crc % SLOTS
}

/// For each slot the smallest number that falls into it.
static STAND_INS: LazyLock<Box<[u32]>> = LazyLock::new(|| {
    let mut numbers = vec![None; usize::from(SLOTS)];
    let mut missing = SLOTS;
    for number in 0_u32.. {
        let place = &mut numbers[usize::from(slot(&number.to_string()))];
        if place.is_none() {
            *place = Some(number);
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
    }
    numbers.into_iter().flatten().collect()
});

/// The pattern of `SCAN` that matches keys which begin with `prefix`, byte for byte.
pub(crate) fn beginning_with(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 1);
    for char in prefix.chars() {
        if matches!(char, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(char);
    }
    pattern.push('*');
    pattern
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use lock_core::{Lease, LockKey, Owner};

    use super::*;

    const NAMES: [&str; 24] = [
        "a",
        "ab",
        "a/b",
        "a b",
        "🔒",
        "{",
        "}",
        "{}",
        "}{",
        "{a",
        "a{",
        "a}",
        "}a",
        "{a}",
        "{a}b",
        "b{a}",
        "{}a",
        "{{a}}",
        "a}{b",
        "a}{b}",
        "{a}{b}",
        "*",
        "schlüssel",
        "fence:{a}",
    ];

    #[test]
    fn the_slot_is_that_of_redis_cluster() {
        // From the cluster specification, and from CLUSTER KEYSLOT of a server.
        for (key, expected) in
            [("123456789", 0x31C3 % SLOTS), ("foo", 12_182), ("{foo}", 12_182), ("a{foo}b{bar}", 12_182), ("", 0)]
        {
            assert_eq!(slot(key), expected, "{key}");
        }
        assert_eq!(slot("foo{}{bar}"), 8_363);
        assert_eq!(slot("foo{{bar}}zap"), slot("{bar"));
    }

    #[test]
    fn all_keys_of_a_lock_are_in_one_slot() {
        for name in NAMES {
            for prefix in ["hasp:", "", "a{b", "x{y}z:", "}"] {
                let key = format!("{prefix}{name}");
                for namespace in ["hasp-fence", "hasp-claims", "hasp-released"] {
                    assert_eq!(slot(&sibling(namespace, &key)), slot(&key), "{key}");
                }
            }
        }
    }

    #[test]
    fn a_claim_is_32_digits_and_its_label() {
        let claim = Claim::new(LockKey::new("a").unwrap(), Owner::random(), Lease::default());
        let id = format!("{:032x}", claim.id.bits());
        assert_eq!(of_claim(&claim), id);
        assert_eq!(of_claim(&claim.with_label("host:7")), format!("{id}:host:7"));
        let mut text = String::new();
        push_hex(&mut text, 0x0123_4567_89ab_cdef_0000_0000_0000_00ff);
        assert_eq!(text, "0123456789abcdef00000000000000ff");
    }

    #[test]
    fn no_two_locks_share_a_key() {
        let siblings: HashSet<_> = NAMES.iter().map(|name| sibling("hasp-fence", name)).collect();
        assert_eq!(siblings.len(), NAMES.len());
    }

    #[test]
    fn a_sibling_tells_its_key() {
        for name in NAMES {
            assert_eq!(of_sibling("hasp-fence", &sibling("hasp-fence", name)), Some(name));
        }
        assert_eq!(of_sibling("hasp-fence", "hasp-fences:{a}"), None);
        assert_eq!(of_sibling("hasp-fence", "hasp-fence:{a"), None);
    }

    #[test]
    fn every_slot_has_a_stand_in() {
        assert_eq!(STAND_INS.len(), usize::from(SLOTS));
        assert!(STAND_INS.iter().enumerate().all(|(at, number)| usize::from(slot(&number.to_string())) == at));
    }

    #[test]
    fn patterns_are_literal() {
        assert_eq!(beginning_with(r"a*?[b]\"), r"a\*\?\[b\]\\*");
        assert_eq!(beginning_with(""), "*");
    }
}
