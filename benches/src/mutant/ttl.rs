//! How long a lease is.

use futures_util::FutureExt;

use super::Mutant;
use super::script::TOKEN;
use crate::Strategy;
use crate::strategy::Kind;

pub(super) const ALL: &[Mutant] = &[WHOLE_SECONDS];

/// EXPIRE of a duration as a number of seconds, as `as_secs` and its likes give it; of 0 it deletes the key (redis.io, EXPIRE).
const WHOLE_SECONDS: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-whole-seconds",
        "",
        "as redis-token, but the ttl is cut down to whole seconds",
        Kind::Token,
        |seat| {
            let line = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then";
            let changed = "if redis.call('SETNX', KEYS[1], ARGV[1]) == 1 then\n\
                           redis.call('EXPIRE', KEYS[1], math.floor(ARGV[2] / 1000))";
            TOKEN.with_acquire(line, changed).backend(seat).boxed()
        },
    ),
    flaw: "half a second is none, and everybody gets the lock",
    caught_by: &["S03"],
};
