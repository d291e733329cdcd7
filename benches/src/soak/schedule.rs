//! A schedule: what the contenders do and which faults befall them, drawn from a seed. It is data, so that the same seed gives
//! the same schedule, and a part of it can be played again.
//!
//! A fault comes at a step of a contender's own, such as "when b holds, in its second turn", and not at a time: a slow machine
//! plays the same schedule later. How long it lasts is a share of the ttl.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use fastrand::Rng;

use super::promise;
use crate::Store;
use crate::stores::NODES;
use crate::strategy::Kind;

/// Enough that each of the keys, of which there are one or two, is fought for.
pub(super) const CONTENDERS: usize = 4;
pub(super) const KEYS: usize = 2;
const TURNS: usize = 5;
const FAULTS: RangeInclusive<usize> = 8..=14;
/// Who are killed take no more part, and without others there is nothing to see.
const KILLS: usize = 2;

/// One round: what each contender does, and the faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    /// The turns of each contender.
    pub(super) turns: Vec<Vec<Turn>>,
    pub(super) faults: Vec<Planned>,
}

/// A contender wants a lock, uses it, and gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) key: usize,
    /// Whether the lease is kept alive, or fixed.
    pub(super) renewed: bool,
    pub(super) idle: Share,
    /// The acquire is cancelled after so long.
    pub(super) cancelled: Option<Share>,
    pub(super) holding: Share,
    /// Whether the lease is extended half way.
    pub(super) extended: bool,
    /// Whether the guard is dropped instead of released.
    pub(super) dropped: bool,
}

/// A part of the ttl, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share(u32);

impl Share {
    pub(super) fn of(self, ttl: Duration) -> Duration {
        ttl * self.0 / 100
    }
}

/// A fault, and when it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) at: Point,
    pub(super) fault: Fault,
    pub(super) lasting: Share,
}

/// A step of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) who: usize,
    pub(super) turn: usize,
    pub(super) moment: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// Just before it asks for the lock.
    Asks,
    /// It has the lock and is about to act.
    Holds,
    /// Just before it gives the lock back.
    Releases,
}

/// What happens. `who` is a contender, `server` one of the store's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The process stands still.
    Stop {
        who: usize,
    },
    Kill {
        who: usize,
    },
    /// It is killed while its next request of this command is under way, which arrives later or never.
    KillWhile {
        who: usize,
        command: &'static str,
        arrives: bool,
    },
    /// Everything from or to it is late.
    Delay {
        who: usize,
        replies: bool,
    },
    /// Nothing passes between it and the server, and nobody is told.
    BlackHole {
        who: usize,
        server: usize,
    },
    /// The network falls in two: it reaches a minority of the servers, and the others reach the majority, the first of which
    /// this is.
    Partition {
        who: usize,
        server: usize,
    },
    /// Its connections to the server are cut, and none is accepted for a while.
    Cut {
        who: usize,
        server: usize,
    },
    /// Its next request of this command is held, at every server.
    HoldRequest {
        who: usize,
        command: &'static str,
    },
    /// The reply to it is held.
    HoldReply {
        who: usize,
        command: &'static str,
    },
    /// The reply to it is lost, and the connection with it.
    LoseReply {
        who: usize,
        command: &'static str,
    },
    /// The connection is cut instead of sending it.
    CutAt {
        who: usize,
        command: &'static str,
    },
    /// The server stands still.
    StopServer {
        server: usize,
    },
    /// The server is killed, and started again after a while.
    RestartServer {
        server: usize,
    },
    /// A Redis closes every connection.
    KillClients {
        server: usize,
    },
    /// A Redis forgets its scripts.
    FlushScripts {
        server: usize,
    },
    /// Time passes for everybody, while all contenders stand still.
    PassTime,
    /// The wall clock of a contender jumps.
    JumpWall {
        who: usize,
        seconds: i32,
    },
}

impl Moment {
    fn draw(rng: &mut Rng) -> Self {
        match rng.u8(..5) {
            0 => Self::Asks,
            1..3 => Self::Holds,
            _ => Self::Releases,
        }
    }
}

impl Schedule {
    /// The schedule of a seed, for a strategy of this kind: only faults that its promise covers.
    pub(super) fn draw(seed: u64, kind: Kind) -> Self {
        let mut rng = Rng::with_seed(seed);
        let keys = rng.usize(1..=KEYS);
        let turns = (0..CONTENDERS).map(|_| (0..TURNS).map(|_| Turn::draw(&mut rng, keys)).collect()).collect();
        let count = rng.usize(FAULTS);
        let (mut faults, mut kills) = (Vec::with_capacity(count), 0);
        while faults.len() < count {
            let planned = Planned::draw(&mut rng, kind);
            if planned.fault.is_deadly() {
                if kills == KILLS {
                    continue;
                }
                kills += 1;
            }
            faults.push(planned);
        }
        Self { turns, faults }
    }

    /// The same with these of its faults.
    pub(super) fn with(&self, faults: &[Planned]) -> Self {
        Self { turns: self.turns.clone(), faults: faults.to_vec() }
    }
}

impl Turn {
    fn draw(rng: &mut Rng, keys: usize) -> Self {
        let renewed = rng.u8(..5) < 2;
        Self {
            key: rng.usize(..keys),
            renewed,
            idle: Share(rng.u32(..20)),
            cancelled: (rng.u8(..8) == 0).then(|| Share(rng.u32(..60))),
            holding: Share(if renewed { rng.u32(20..150) } else { rng.u32(15..95) }),
            extended: rng.u8(..4) == 0,
            dropped: rng.u8(..4) == 0,
        }
    }
}

impl Planned {
    fn draw(rng: &mut Rng, kind: Kind) -> Self {
        let mut at = Point { who: rng.usize(..CONTENDERS), turn: rng.usize(..TURNS), moment: Moment::draw(rng) };
        // Mostly whoever has come to the point: somebody else is as likely idle.
        let mut who = if rng.u8(..3) > 0 { at.who } else { rng.usize(..CONTENDERS) };
        let servers = if kind.store() == Store::Nodes { NODES } else { 1 };
        let server = rng.usize(..servers);
        let faults = promise::faults(kind);
        let sort = faults[rng.usize(..faults.len())];
        let commands = promise::commands(kind);
        let (command, moment) = commands[rng.usize(..commands.len())];
        if sort.is_of_a_command() {
            // It comes of itself after this step.
            (who, at.moment) = (at.who, moment);
        } else if matches!(sort, Sort::JumpWall | Sort::Delay) {
            // Whoever reads that clock does so when he asks, and a reply that is late matters most if it is a grant.
            (who, at.moment) = (at.who, Moment::Asks);
        }
        let (fault, shares) = match sort {
            Sort::Stop => (Fault::Stop { who }, 40..220),
            Sort::Kill => (Fault::Kill { who }, 0..1),
            Sort::KillWhile => (Fault::KillWhile { who, command, arrives: rng.bool() }, 50..150),
            Sort::Delay => (Fault::Delay { who, replies: rng.u8(..3) > 0 }, 30..98),
            Sort::BlackHole => (Fault::BlackHole { who, server }, 20..200),
            // Long enough that others take the lock meanwhile, at the majority.
            Sort::Partition => (Fault::Partition { who, server }, 100..250),
            Sort::Cut => (Fault::Cut { who, server }, 0..50),
            Sort::HoldRequest => (Fault::HoldRequest { who, command }, 60..160),
            Sort::HoldReply => (Fault::HoldReply { who, command }, 40..130),
            Sort::LoseReply => (Fault::LoseReply { who, command }, 0..1),
            Sort::CutAt => (Fault::CutAt { who, command }, 0..1),
            Sort::StopServer => (Fault::StopServer { server }, 20..150),
            // Redlock's nodes keep nothing: they stay down until every lease that they have forgotten is over.
            Sort::RestartServer if kind.store() == Store::Nodes => (Fault::RestartServer { server }, 120..160),
            Sort::RestartServer => (Fault::RestartServer { server }, 0..50),
            Sort::KillClients => (Fault::KillClients { server }, 0..1),
            Sort::FlushScripts => (Fault::FlushScripts { server }, 0..1),
            Sort::PassTime => (Fault::PassTime, 30..300),
            Sort::JumpWall => (Fault::JumpWall { who, seconds: if rng.bool() { 60 } else { -60 } }, 50..200),
        };
        Self { at, fault, lasting: Share(rng.u32(shares)) }
    }
}

/// A fault without whom it befalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sort {
    Stop,
    Kill,
    KillWhile,
    Delay,
    BlackHole,
    Partition,
    Cut,
    HoldRequest,
    HoldReply,
    LoseReply,
    CutAt,
    StopServer,
    RestartServer,
    KillClients,
    FlushScripts,
    PassTime,
    JumpWall,
}

impl Sort {
    const fn is_of_a_command(self) -> bool {
        matches!(self, Self::KillWhile | Self::HoldRequest | Self::HoldReply | Self::LoseReply | Self::CutAt)
    }
}

impl Fault {
    const fn is_deadly(self) -> bool {
        matches!(self, Self::Kill { .. } | Self::KillWhile { .. })
    }

    /// What happens, told to people.
    pub(super) fn tell(self, lasting: Duration) -> String {
        let ms = lasting.as_millis();
        match self {
            Self::Stop { who } => format!("{}'s process is stopped for {ms} ms", name(who)),
            Self::Kill { who } => format!("{}'s process is killed", name(who)),
            Self::KillWhile { who, command, arrives: true } => {
                format!("{}'s process is killed at its next {command}, which arrives {ms} ms later", name(who))
            }
            Self::KillWhile { who, command, arrives: false } => {
                format!("{}'s process is killed at its next {command}, which never arrives", name(who))
            }
            Self::Delay { who, replies } => {
                let what = if replies { "to" } else { "from" };
                format!("everything {what} {} is {ms} ms late, for four times as long", name(who))
            }
            Self::BlackHole { who, server } => {
                format!("nothing passes between {} and server {server} for {ms} ms", name(who))
            }
            Self::Partition { who, server } => {
                let servers = majority_from(server).map(|server| server.to_string()).collect::<Vec<_>>().join(", ");
                format!(
                    "for {ms} ms the servers {servers} are reached by everybody but {}, who alone reaches the rest",
                    name(who)
                )
            }
            Self::Cut { who, server } => {
                format!("{}'s connections to server {server} are cut, and refused for {ms} ms", name(who))
            }
            Self::HoldRequest { who, command } => format!("{}'s next {command} is held for {ms} ms", name(who)),
            Self::HoldReply { who, command } => {
                format!("the reply to {}'s next {command} is held for {ms} ms", name(who))
            }
            Self::LoseReply { who, command } => format!("the reply to {}'s next {command} is lost", name(who)),
            Self::CutAt { who, command } => {
                format!("{}'s connection is cut instead of sending its next {command}", name(who))
            }
            Self::StopServer { server } => format!("server {server} is stopped for {ms} ms"),
            Self::RestartServer { server } => format!("server {server} is killed, and started again after {ms} ms"),
            Self::KillClients { server } => format!("server {server} closes every connection"),
            Self::FlushScripts { server } => format!("server {server} forgets its scripts"),
            Self::PassTime => format!("everybody stands still, and {ms} ms pass on all clocks"),
            Self::JumpWall { who, seconds } => {
                format!("{}'s wall clock jumps by {seconds} s, and back after {ms} ms", name(who))
            }
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.moment {
            Moment::Asks => "asks for the lock",
            Moment::Holds => "holds the lock",
            Moment::Releases => "is to release the lock",
        };
        write!(f, "when {} {step} in turn {}", name(self.who), self.turn + 1)
    }
}

/// So many of Redlock's nodes, from this one on, that the others are no majority.
pub(super) fn majority_from(server: usize) -> impl Iterator<Item = usize> {
    (server..=server + NODES / 2).map(|server| server % NODES)
}

/// A contender's name in the history.
pub(super) fn name(who: usize) -> String {
    char::from(b'a' + u8::try_from(who).expect("there are fewer than 26")).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_schedule_and_others_give_others() {
        for kind in Kind::ALL {
            if promise::faults(kind).is_empty() {
                continue;
            }
            assert_eq!(Schedule::draw(7, kind), Schedule::draw(7, kind), "{kind:?}");
            assert_ne!(Schedule::draw(7, kind), Schedule::draw(8, kind), "{kind:?}");
        }
    }

    #[test]
    fn a_schedule_has_no_fault_that_the_promise_does_not_cover() {
        for seed in 0..2_000 {
            for kind in [Kind::Redlock, Kind::RedlockFenced] {
                for planned in Schedule::draw(seed, kind).faults {
                    if let Fault::RestartServer { .. } = planned.fault {
                        let ttl = Duration::from_secs(1);
                        assert!(planned.lasting.of(ttl) > ttl * 11 / 10, "a node that forgets is back too early");
                    }
                }
            }
            for kind in [Kind::Etcd, Kind::ZooKeeper] {
                let faults = Schedule::draw(seed, kind).faults;
                assert!(faults.iter().all(|planned| planned.fault != Fault::PassTime), "their clocks cannot be set");
            }
        }
    }

    #[test]
    fn every_covered_fault_is_drawn_sooner_or_later() {
        for kind in [Kind::Token, Kind::Redlock, Kind::Etcd] {
            let drawn = (0..500).flat_map(|seed| Schedule::draw(seed, kind).faults);
            let seen: HashSet<_> = drawn.map(|planned| std::mem::discriminant(&planned.fault)).collect();
            assert_eq!(seen.len(), promise::faults(kind).iter().collect::<HashSet<_>>().len(), "{kind:?}");
        }
    }

    #[test]
    fn a_majority_leaves_a_minority_wherever_it_begins() {
        for server in 0..NODES {
            let majority: HashSet<_> = majority_from(server).collect();
            assert!(majority.contains(&server) && majority.len() > NODES / 2 && majority.len() < NODES, "{majority:?}");
        }
    }

    #[test]
    fn nobody_is_left_alone_by_the_killed() {
        for seed in 0..2_000 {
            let schedule = Schedule::draw(seed, Kind::Token);
            let kills = schedule.faults.iter().filter(|planned| planned.fault.is_deadly()).count();
            assert!(kills <= KILLS, "{kills}");
        }
    }
}
