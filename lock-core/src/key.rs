use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{Effect, Error, ErrorKind, Result};

/// The name of what is locked: 1 to 512 bytes of UTF-8 without control characters.
///
/// Two keys are the same lock only if they are equal byte for byte; `a`, `a/b` and `ab` are three locks on every backend.
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockKey(Arc<str>);

impl LockKey {
    /// The longest key, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// Checks `name` and makes it a key.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if `name` is empty, longer than [`LockKey::MAX_BYTES`] or holds a control character.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        let fault = if name.is_empty() {
            "a key must not be empty; name what is locked, such as `orders/42`".to_owned()
        } else if name.len() > Self::MAX_BYTES {
            format!("the key has {} bytes and may have {}; hash the long part of it", name.len(), Self::MAX_BYTES)
        } else if let Some(at) = name.find(char::is_control) {
            format!("the key has a control character at byte {at}; encode or remove it")
        } else {
            return Ok(Self(Arc::from(name)));
        };
        Err(Error::new(ErrorKind::InvalidInput, Effect::None, "lock-core", "key", fault))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for LockKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for LockKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for LockKey {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_1_to_512_bytes_are_keys() {
        for name in ["a", "a/b", "ab", "{a}", "}", " ", "a b", "schlüssel", "🔒", &"x".repeat(512)] {
            assert_eq!(LockKey::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn empty_long_and_control_are_refused_with_what_to_do() {
        for (name, says) in [
            ("", "must not be empty"),
            (&*"x".repeat(513), "has 513 bytes and may have 512"),
            ("a\nb", "control character at byte 1"),
            ("\0", "control character at byte 0"),
            ("a\u{85}", "control character at byte 1"),
        ] {
            let error = LockKey::new(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
