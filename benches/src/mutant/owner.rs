//! Whose a lock is.

use futures_util::FutureExt;

use super::Mutant;
use super::script::TOKEN;
use crate::Strategy;
use crate::strategy::Kind;

pub(super) const ALL: &[Mutant] = &[OWNER_AS_VALUE];

/// Host and pid, as many libraries write them: two containers of one image may have both in common.
const OWNER_AS_VALUE: Mutant = Mutant {
    strategy: Strategy::new(
        "mutant-token-owner-as-value",
        "",
        "as redis-token, but what is written is the owner, and not a number that each claim draws",
        Kind::Token,
        |seat| TOKEN.with_claim(|claim| format!("{:032x}", claim.owner.bits())).backend(seat).boxed(),
    ),
    flaw: "two who have the same owner take each other's lock for their own",
    caught_by: &["S09"],
};
