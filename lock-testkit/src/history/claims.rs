use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::event::{Event, Op, Phase};

/// What the events say of one acquisition.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    /// The beginning; in a history that lacks it, the answer.
    pub(super) first: &'a Event,
    pub(super) answer: Option<&'a Event>,
    /// The renewals and their answers "not held", and the affirmations, in order.
    pub(super) changes: Vec<&'a Event>,
    /// The first beginning of a release, or that the holder stopped or its actor ended.
    pub(super) ceased: Option<&'a Event>,
    /// The answers of the release, in order.
    pub(super) releases: Vec<&'a Event>,
    /// When the lock was found free after the claim was answered or its actor had ended.
    free_ns: Option<u64>,
}

impl<'a> Claim<'a> {
    const fn new(first: &'a Event) -> Self {
        Self { first, answer: None, changes: Vec::new(), ceased: None, releases: Vec::new(), free_ns: None }
    }

    /// For whom it is; without an owner, for nobody else's.
    pub(super) fn owner(&self) -> Option<&'a str> {
        self.answer.unwrap_or(self.first).owner.as_deref()
    }

    pub(super) fn is_of_same_owner_as(&self, other: &Self) -> bool {
        self.owner().is_some() && self.owner() == other.owner()
    }

    /// When the actor learned what came of it; of one without an answer, when it began.
    fn told_ns(&self) -> u64 {
        self.answer.unwrap_or(self.first).t_ns
    }

    /// When the holder ceased to act: `u64::MAX` if it never did.
    pub(super) fn ceased_ns(&self) -> u64 {
        self.ceased.map_or(u64::MAX, |event| event.t_ns)
    }

    /// The first answer to a renewal that the lock was not held. One that came after the release began says nothing: it may
    /// have been sent after.
    pub(super) fn loss(&self) -> Option<&'a Event> {
        let loss = self.changes.iter().copied().find(|change| change.phase == Phase::NotHeld);
        loss.filter(|loss| loss.t_ns < self.ceased_ns())
    }

    /// The last instant at which the claim may have been in the store, as far as anybody was told: `u64::MAX` if nobody was
    /// told that it is gone. A lease that nobody gave back has no known end, because the store may keep it for longer than
    /// its holder may rely on.
    pub(super) fn may_last_until(&self) -> u64 {
        match self.answer.map(|answer| (answer.phase, answer.t_ns)) {
            Some((Phase::Busy | Phase::Fail, t_ns)) => t_ns,
            _ => {
                let release = self.releases.iter().find(|answer| matches!(answer.phase, Phase::Ok | Phase::NotHeld));
                let told = [release.copied(), self.loss()].into_iter().flatten().map(|event| event.t_ns);
                told.chain(self.free_ns).min().unwrap_or(u64::MAX)
            }
        }
    }
}

/// A claim that was granted.
#[derive(Debug)]
pub(super) struct Hold<'a> {
    pub(super) granted: &'a Event,
    pub(super) claim: Claim<'a>,
}

impl Hold<'_> {
    /// Until when the holder was allowed to act, as it had been told by `t_ns`: its deadline then, or an earlier loss. A
    /// grant without a deadline has no end.
    pub(super) fn deadline_at(&self, t_ns: u64) -> u64 {
        self.until(t_ns, |change| change.op != Op::Affirm)
    }

    /// The same, but where the holder said that it still held the lock, it did as it believed.
    pub(super) fn believed_at(&self, t_ns: u64) -> u64 {
        self.until(t_ns, |_| true)
    }

    fn until(&self, t_ns: u64, counts: impl Fn(&Event) -> bool) -> u64 {
        let mut deadline = self.granted.deadline_ns.unwrap_or(u64::MAX);
        for change in self.claim.changes.iter().filter(|change| counts(change)) {
            if change.t_ns >= t_ns {
                break;
            }
            match (change.op, change.phase) {
                (Op::Affirm, _) => match change.deadline_ns {
                    None => deadline = deadline.max(change.t_ns),
                    Some(believed) if believed > change.t_ns => deadline = believed,
                    Some(_) => {}
                },
                // A lock that was lost is not held again by a late renewal.
                _ if change.t_ns > deadline => {}
                (_, Phase::Ok) => deadline = change.deadline_ns.unwrap_or(u64::MAX),
                _ => deadline = change.t_ns,
            }
        }
        deadline
    }
}

/// The acquisitions, in the order in which they began.
pub(super) fn claims<'a>(events: &[&'a Event]) -> Vec<Claim<'a>> {
    let mut by_number: HashMap<u64, usize, BuildHasherDefault<Spread>> =
        HashMap::with_capacity_and_hasher(events.len() / 4, BuildHasherDefault::default());
    let mut claims: Vec<Claim<'a>> = Vec::with_capacity(events.len() / 4);
    let mut ends: HashMap<&str, Vec<&'a Event>> = HashMap::new();
    let mut frees: HashMap<&str, Vec<&'a Event>> = HashMap::new();
    for &event in events {
        match (event.op, event.hold) {
            (Op::Stop, None) => ends.entry(&event.actor).or_default().push(event),
            (Op::Free, _) => frees.entry(&event.key).or_default().push(event),
            (Op::Acquire, Some(number)) => {
                let at = *by_number.entry(number).or_insert(claims.len());
                if at == claims.len() {
                    claims.push(Claim::new(event));
                }
                if event.phase != Phase::Invoke {
                    claims[at].answer = Some(event);
                }
            }
            (Op::Renew | Op::Affirm | Op::Release | Op::Stop, Some(number)) => {
                let Some(claim) = by_number.get(&number).and_then(|at| claims.get_mut(*at)) else { continue };
                match (event.op, event.phase) {
                    (Op::Renew, Phase::Ok | Phase::NotHeld) | (Op::Affirm, _) => claim.changes.push(event),
                    (Op::Stop, _) | (Op::Release, Phase::Invoke) => {
                        claim.ceased.get_or_insert(event);
                    }
                    (Op::Release, _) => claim.releases.push(event),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    if !ends.is_empty() {
        for claim in &mut claims {
            let end = ends.get(&*claim.first.actor);
            let end = end.and_then(|ends| ends.get(ends.partition_point(|end| end.t_ns < claim.told_ns())));
            claim.ceased = claim.ceased.into_iter().chain(end.copied()).min_by_key(|event| event.t_ns);
        }
    }
    if !frees.is_empty() {
        for claim in &mut claims {
            let settled_ns = claim.answer.or(claim.ceased).map_or(u64::MAX, |event| event.t_ns);
            let free = frees.get(&*claim.first.key);
            let free = free.and_then(|frees| frees.get(frees.partition_point(|free| free.t_ns <= settled_ns)));
            claim.free_ns = free.map(|free| free.t_ns);
        }
    }
    claims
}

/// The acquisitions that were granted, in the order of their grants.
pub(super) fn holds<'a>(events: &[&'a Event]) -> Vec<Hold<'a>> {
    let granted = |claim: Claim<'a>| {
        let granted = claim.answer.filter(|answer| answer.phase == Phase::Ok)?;
        Some(Hold { granted, claim })
    };
    let mut holds: Vec<_> = claims(events).into_iter().filter_map(granted).collect();
    holds.sort_by_key(|hold| hold.granted.t_ns);
    holds
}

/// What there is of each key, in order.
pub(super) fn by_key<'a, T>(all: &[T], key_of: impl Fn(&T) -> &'a str) -> Vec<Vec<&T>> {
    let mut numbers: HashMap<&'a str, usize> = HashMap::new();
    let mut keys: Vec<Vec<&T>> = Vec::new();
    for one in all {
        let number = *numbers.entry(key_of(one)).or_insert(keys.len());
        if number == keys.len() {
            keys.push(Vec::new());
        }
        keys[number].push(one);
    }
    keys
}

/// Spreads the numbers of holds, which follow one another. Half of the time would go into hashing them against an adversary.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio: Knuth's multiplicative hashing.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
