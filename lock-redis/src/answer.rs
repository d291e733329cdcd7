//! What the integer that a script answers means.

use std::time::Duration;

use lock_core::wait::Attempt;
use lock_core::{Claim, Effect, Error, ErrorKind, FencingToken, Grant, LockKey, Moment, Release, Renewal, Result};

use crate::lease::Ttl;

/// Positive: the fencing token. Else minus the remaining milliseconds of another's lock, or zero if it has no end.
pub(crate) fn acquire(answer: i64, claim: &Claim, sent_at: Moment, ttl: &Ttl) -> Attempt {
    match u64::try_from(answer) {
        Ok(token) if token > 0 => {
            let grant = Grant::new(claim.clone(), sent_at, ttl.given);
            Attempt::Granted(grant.with_fencing_token(FencingToken::new(token)))
        }
        _ => Attempt::Busy { remaining: remaining(answer.saturating_neg()) },
    }
}

pub(crate) fn granted(attempt: Attempt) -> Option<Grant> {
    match attempt {
        Attempt::Granted(grant) => Some(grant),
        Attempt::Busy { .. } => None,
    }
}

/// Positive: ours, and its ttl has been restarted.
pub(crate) fn renewal(answer: i64, sent_at: Moment, ttl: &Ttl, backend: &str, key: &LockKey) -> Result<Renewal> {
    if answer > 0 {
        return Ok(Renewal::new(sent_at, ttl.given));
    }
    let says =
        "the lock is not held by this claim any more: it expired, or was taken away; stop the work that it guards";
    Err(Error::new(ErrorKind::Lost, Effect::None, backend, "renew", says).with_key(key))
}

/// Positive: it was held, and is not any more.
pub(crate) fn release(answer: i64) -> Release {
    if answer > 0 { Release::Released } else { Release::NotHeld }
}

/// What `PTTL` says of a key that will expire.
pub(crate) fn remaining(pttl: i64) -> Option<Duration> {
    u64::try_from(pttl).ok().filter(|&millis| millis > 0).map(Duration::from_millis)
}
