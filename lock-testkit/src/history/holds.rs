use std::collections::HashMap;

use super::event::{Event, Op, Phase};

/// What the events say of one acquisition that was granted.
#[derive(Debug)]
pub(super) struct Hold<'a> {
    pub(super) invoked: Option<&'a Event>,
    pub(super) granted: &'a Event,
    /// The renewals and the first answer "not held", in order.
    pub(super) renewals: Vec<&'a Event>,
    /// The first beginning of a release, or that the holder stopped or its actor ended.
    pub(super) ceased: Option<&'a Event>,
    /// The answers of the release, in order.
    pub(super) answers: Vec<&'a Event>,
}

impl Hold<'_> {
    /// Whether both are of one owner, who may hold a lock more than once.
    pub(super) fn is_of_same_owner_as(&self, other: &Self) -> bool {
        self.granted.owner.is_some() && self.granted.owner == other.granted.owner
    }

    /// When the holder ceased to act: `u64::MAX` if it never did.
    pub(super) fn ceased_ns(&self) -> u64 {
        self.ceased.map_or(u64::MAX, |event| event.t_ns)
    }

    /// Until when the holder was allowed to act, as it knew at `t_ns`: its deadline then, or an earlier loss that it was
    /// told of. A grant without a deadline has no end.
    pub(super) fn deadline_at(&self, t_ns: u64) -> u64 {
        let mut deadline = self.granted.deadline_ns.unwrap_or(u64::MAX);
        for renewal in &self.renewals {
            // A lock that was lost is not held again by a late renewal.
            if renewal.t_ns >= t_ns || renewal.t_ns > deadline {
                break;
            }
            match renewal.phase {
                Phase::Ok => deadline = renewal.deadline_ns.unwrap_or(u64::MAX),
                _ => return renewal.t_ns,
            }
        }
        deadline
    }
}

/// The granted acquisitions, in the order of their grants.
pub(super) fn holds<'a>(events: &[&'a Event]) -> Vec<Hold<'a>> {
    let mut holds: Vec<Hold<'_>> = Vec::new();
    let mut invoked = HashMap::new();
    let mut by_number = HashMap::new();
    let mut active: HashMap<&str, Vec<usize>> = HashMap::new();
    for &event in events {
        let Some(number) = event.hold else {
            if event.op == Op::Stop {
                for at in active.remove(&*event.actor).unwrap_or_default() {
                    holds[at].ceased.get_or_insert(event);
                }
            }
            continue;
        };
        match (event.op, event.phase) {
            (Op::Acquire, Phase::Invoke) => {
                invoked.insert(number, event);
                continue;
            }
            (Op::Acquire, Phase::Ok) => {
                let invoked = invoked.remove(&number);
                by_number.insert(number, holds.len());
                active.entry(&event.actor).or_default().push(holds.len());
                let (renewals, answers) = (Vec::new(), Vec::new());
                holds.push(Hold { invoked, granted: event, renewals, ceased: None, answers });
                continue;
            }
            _ => {}
        }
        let Some(hold) = by_number.get(&number).map(|at| &mut holds[*at]) else { continue };
        match (event.op, event.phase) {
            (Op::Renew, Phase::Ok | Phase::NotHeld) => hold.renewals.push(event),
            (Op::Stop, _) | (Op::Release, Phase::Invoke) => {
                hold.ceased.get_or_insert(event);
            }
            (Op::Release, _) => hold.answers.push(event),
            _ => {}
        }
    }
    holds
}

/// The positions of the holds of each key, in the order of their grants.
pub(super) fn by_key<'a>(holds: &[Hold<'a>]) -> Vec<Vec<usize>> {
    let mut numbers: HashMap<&'a str, usize> = HashMap::new();
    let mut keys: Vec<Vec<usize>> = Vec::new();
    for (at, hold) in holds.iter().enumerate() {
        let number = *numbers.entry(&hold.granted.key).or_insert(keys.len());
        if number == keys.len() {
            keys.push(Vec::new());
        }
        keys[number].push(at);
    }
    keys
}
