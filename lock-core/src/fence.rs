use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Effect, Error, ErrorKind, Result};

/// A number that grows with every grant of a key, so that a resource can refuse a holder that has been replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The token with this value.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The value, to be sent along with a write.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The resource's side of fencing, for a resource that lives in this process: it remembers the greatest token that it has
/// seen and refuses a smaller one.
///
/// An equal token is admitted, because one holder writes more than once. One fence serves one key. What it has seen is gone
/// with the process, so a resource that outlives it must keep the token beside the data, and check and write in one step:
///
/// ```sql
/// UPDATE orders SET state = :state, fence = :token WHERE id = :id AND fence <= :token
/// ```
///
/// No row changed means that a newer holder has written: the lock is lost.
///
/// # Examples
///
/// ```
/// use lock_core::{Fence, FencingToken};
///
/// let fence = Fence::new();
/// fence.admit(FencingToken::new(7))?;
/// fence.admit(FencingToken::new(7))?;
/// assert!(fence.admit(FencingToken::new(6)).is_err());
/// # Ok::<(), lock_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Fence {
    greatest: AtomicU64,
}

impl Fence {
    /// A fence that has seen no token.
    #[must_use]
    pub const fn new() -> Self {
        Self { greatest: AtomicU64::new(0) }
    }

    /// Admits `token` unless a greater one has been here.
    ///
    /// Check and write are two steps here: hold whatever guards the resource (its mutex) over both.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if a greater token has been admitted: its holder has replaced this one.
    pub fn admit(&self, token: FencingToken) -> Result<()> {
        let greatest = self.greatest.fetch_max(token.0, Ordering::AcqRel);
        if greatest <= token.0 {
            return Ok(());
        }
        let says =
            format!("token {token} is older than {greatest}, which a newer holder has used; stop, the lock is lost");
        Err(Error::new(ErrorKind::Lost, Effect::None, "fence", "admit", says))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_and_greater_tokens_pass_and_smaller_ones_do_not() {
        let fence = Fence::new();
        for (token, admitted) in [(1, true), (1, true), (5, true), (4, false), (1, false), (5, true), (6, true)] {
            let answer = fence.admit(FencingToken::new(token));
            assert_eq!(answer.is_ok(), admitted, "{token}");
            if let Err(error) = answer {
                assert_eq!(error.kind(), ErrorKind::Lost);
            }
        }
    }
}
