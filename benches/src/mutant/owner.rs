//! Whose a lock is.

use futures_util::FutureExt;

use super::Mutant;
use super::script::TOKEN;
use crate::Strategy;
use crate::strategy::Kind;

pub(super) const ALL: &[Mutant] = &[FIXED_OWNER];

/// Host and pid as the value: in two containers of one image they are the same.
const FIXED_OWNER: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-fixed-owner",
        "",
        "as redis-token, but what is written as the owner is the same for every client",
        Kind::Token,
        |seat| TOKEN.with_claim(|_| "localhost:1".to_owned()).backend(seat).boxed(),
    ),
    flaw: "every client finds its own name in the lock",
    caught_by: &["S09"],
};
