//! What each kind of strategy promises, as the soak needs it: which faults its promise covers, and what may be found.

use lock_testkit::history::Observable;

use super::schedule::{Moment, Sort};
use crate::strategy::Kind;
use crate::{Store, Strategy};

/// What a soak must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// Nothing, whatever befalls it under assumptions A1 to A3 of `docs/safety.md`.
    Sound,
    /// At least one of these, and nothing else, for this reason.
    BreaksBy(&'static [Observable], &'static str),
    /// It is wrong on purpose: anything.
    Mutant,
    /// It cannot be soaked, for this reason.
    Unfit(&'static str),
}

/// What the verdict goes by. The others need no fault of the lock: a holder who is stopped overlaps with the next, and a write
/// may be late after any look at the guard (A4), so the resource that checks no tokens shows them for every strategy.
pub(super) const JUDGED: [Observable; 6] = [
    Observable::InLeaseOverlap,
    Observable::TokenRegression,
    Observable::StaleWriteAccepted,
    Observable::Stuck,
    Observable::Stolen,
    Observable::DishonestOutcome,
];

pub(super) fn promise(strategy: &Strategy) -> Promise {
    use Observable::{DishonestOutcome, InLeaseOverlap, Stolen, Stuck};

    if strategy.name().starts_with("mutant-") {
        return Promise::Mutant;
    }
    match strategy.kind() {
        Kind::Memory => Promise::Unfit(
            "its holders are one process with its store: there is no network, no server and no clock that could be at fault",
        ),
        Kind::SetnxExpire => Promise::BreaksBy(
            &[Stuck, Stolen, InLeaseOverlap, DishonestOutcome],
            "who dies between SETNX and EXPIRE holds for ever, and a DEL that comes after its GET asks nobody",
        ),
        Kind::GetSet => Promise::BreaksBy(
            &[Stolen, InLeaseOverlap, DishonestOutcome],
            "the stamp is judged by everybody's own wall clock, and a DEL that comes after its GET asks nobody",
        ),
        Kind::BlindDelete => Promise::BreaksBy(
            &[Stolen, InLeaseOverlap, DishonestOutcome],
            "a late release deletes whoever's entry it is",
        ),
        Kind::Token
        | Kind::TokenWatch
        | Kind::Reentrant
        | Kind::Redlock
        | Kind::RedlockFenced
        | Kind::Etcd
        | Kind::ZooKeeper => Promise::Sound,
    }
}

impl Promise {
    /// Whether it is as documented that just these were found.
    pub(super) fn is_kept(self, found: &[Observable]) -> bool {
        match self {
            Self::Sound => found.is_empty(),
            Self::BreaksBy(known, _) => !found.is_empty() && found.iter().all(|found| known.contains(found)),
            Self::Mutant => !found.is_empty(),
            Self::Unfit(_) => false,
        }
    }

    /// What shows the same as what was found: anything that is not documented, or anything that is.
    pub(super) fn alike(self, found: &[Observable]) -> Vec<Observable> {
        let Self::BreaksBy(known, _) = self else { return JUDGED.to_vec() };
        let is_documented = self.is_kept(found);
        JUDGED.into_iter().filter(|judged| known.contains(judged) == is_documented).collect()
    }
}

/// Whether a strategy of this kind gives tokens that a resource can check.
pub(super) const fn has_tokens(kind: Kind) -> bool {
    match kind {
        Kind::SetnxExpire | Kind::GetSet | Kind::BlindDelete | Kind::Redlock => false,
        Kind::Memory
        | Kind::Token
        | Kind::TokenWatch
        | Kind::Reentrant
        | Kind::RedlockFenced
        | Kind::Etcd
        | Kind::ZooKeeper => true,
    }
}

/// The faults that a strategy's promise covers. Those of one store are the same for all, so that a weak strategy meets what a
/// sound one bears. What stands there more often is drawn more often.
///
/// Not among them: data that is lost, a server's wall clock that jumps, an administrator who deletes, more than half of Redlock's
/// nodes forgetting what is not over.
pub(super) fn faults(kind: Kind) -> Vec<Sort> {
    use Sort::{
        BlackHole, Cut, CutAt, Delay, FlushScripts, HoldReply, HoldRequest, JumpWall, Kill, KillClients, KillWhile,
        LoseReply, Partition, PassTime, RestartServer, Stop, StopServer,
    };

    const ANYWHERE: &[Sort] = &[
        Stop,
        Stop,
        Kill,
        KillWhile,
        KillWhile,
        Delay,
        Delay,
        BlackHole,
        Cut,
        HoldRequest,
        HoldRequest,
        HoldRequest,
        HoldReply,
        HoldReply,
        LoseReply,
        CutAt,
        StopServer,
        RestartServer,
    ];
    let (anywhere, there): (_, &[_]) = match kind.store() {
        Store::Process => (&[][..], &[]),
        Store::Redis => (ANYWHERE, &[KillClients, FlushScripts, PassTime, JumpWall, JumpWall]),
        Store::Nodes => (ANYWHERE, &[KillClients, FlushScripts, PassTime, JumpWall, Partition, Partition, Partition]),
        // Their servers' clocks cannot be set.
        Store::Etcd | Store::ZooKeeper => (ANYWHERE, &[JumpWall]),
    };
    [anywhere, there].concat()
}

/// The commands by which a strategy of this kind acquires, renews and releases, each with the step after which it comes: those
/// that a fault may pick, and more often those at which a strategy of several steps is weakest.
pub(super) const fn commands(kind: Kind) -> &'static [(&'static str, Moment)] {
    use Moment::{Asks, Holds, Releases};

    match kind {
        Kind::Memory => &[],
        Kind::SetnxExpire => &[
            ("SETNX", Asks),
            ("EXPIRE", Asks),
            ("EXPIRE", Asks),
            ("GET", Releases),
            ("DEL", Releases),
            ("DEL", Releases),
        ],
        Kind::GetSet => {
            &[("SETNX", Asks), ("GET", Asks), ("GETSET", Asks), ("GET", Releases), ("DEL", Releases), ("DEL", Releases)]
        }
        Kind::BlindDelete => &[("SET", Asks), ("DEL", Releases), ("DEL", Releases)],
        Kind::TokenWatch => {
            &[("EVALSHA", Asks), ("EVALSHA", Holds), ("WATCH", Releases), ("EXEC", Releases), ("EXEC", Releases)]
        }
        Kind::Token | Kind::Reentrant | Kind::RedlockFenced => {
            &[("EVALSHA", Asks), ("EVALSHA", Asks), ("EVALSHA", Holds), ("EVALSHA", Releases)]
        }
        Kind::Redlock => &[("SET", Asks), ("EVALSHA", Asks), ("EVALSHA", Holds), ("EVALSHA", Releases)],
        Kind::Etcd => &[
            ("LeaseGrant", Asks),
            ("Txn", Asks),
            ("Range", Asks),
            ("LeaseKeepAlive", Holds),
            ("LeaseRevoke", Releases),
            ("Txn", Releases),
        ],
        Kind::ZooKeeper => &[
            ("create2", Asks),
            ("create2", Asks),
            ("getChildren", Asks),
            ("exists", Asks),
            ("ping", Holds),
            ("delete", Releases),
            ("delete", Releases),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_that_is_soaked_has_faults_and_commands() {
        for strategy in Strategy::all() {
            let fit = !matches!(promise(&strategy), Promise::Unfit(_));
            assert_eq!(fit, !faults(strategy.kind()).is_empty(), "{strategy:?}");
            assert_eq!(fit, !commands(strategy.kind()).is_empty(), "{strategy:?}");
        }
    }

    #[test]
    fn a_promise_is_kept_both_ways() {
        use Observable::{Stolen, Stuck};

        let weak = Promise::BreaksBy(&[Stolen], "");
        for (promise, found, kept) in [
            (Promise::Sound, &[][..], true),
            (Promise::Sound, &[Stolen], false),
            (weak, &[], false),
            (weak, &[Stolen], true),
            (weak, &[Stolen, Stuck], false),
            (Promise::Mutant, &[], false),
            (Promise::Mutant, &[Stuck], true),
        ] {
            assert_eq!(promise.is_kept(found), kept, "{promise:?} {found:?}");
        }
        assert!(weak.alike(&[Stolen, Stuck]).contains(&Stuck) && !weak.alike(&[Stolen, Stuck]).contains(&Stolen));
        assert_eq!(weak.alike(&[Stolen]), [Stolen]);
        assert_eq!(Promise::Sound.alike(&[Stolen]), JUDGED);
    }
}
