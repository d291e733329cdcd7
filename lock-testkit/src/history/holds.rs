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
    #[derive(Default)]
    struct Acquisition<'a> {
        invoked: Option<&'a Event>,
        granted: Option<&'a Event>,
        renewals: Vec<&'a Event>,
        ceased: Option<&'a Event>,
        answers: Vec<&'a Event>,
    }

    let mut by_number = HashMap::with_capacity(events.len() / 4);
    let mut acquisitions: Vec<Acquisition<'_>> = Vec::with_capacity(events.len() / 4);
    let mut ends: HashMap<&str, Vec<&Event>> = HashMap::new();
    for &event in events {
        let Some(number) = event.hold else {
            if event.op == Op::Stop {
                ends.entry(&event.actor).or_default().push(event);
            }
            continue;
        };
        let at = *by_number.entry(number).or_insert(acquisitions.len());
        if at == acquisitions.len() {
            acquisitions.push(Acquisition::default());
        }
        let acquisition = &mut acquisitions[at];
        match (event.op, event.phase) {
            (Op::Acquire, Phase::Invoke) => acquisition.invoked = Some(event),
            (Op::Acquire, Phase::Ok) => acquisition.granted = Some(event),
            (Op::Renew, Phase::Ok | Phase::NotHeld) => acquisition.renewals.push(event),
            (Op::Stop, _) | (Op::Release, Phase::Invoke) => {
                acquisition.ceased.get_or_insert(event);
            }
            (Op::Release, _) => acquisition.answers.push(event),
            _ => {}
        }
    }

    let mut holds: Vec<Hold<'_>> = acquisitions
        .into_iter()
        .filter_map(|Acquisition { invoked, granted, renewals, ceased, answers }| {
            Some(Hold { invoked, granted: granted?, renewals, ceased, answers })
        })
        .collect();
    holds.sort_by_key(|hold| hold.granted.t_ns);
    if !ends.is_empty() {
        for hold in &mut holds {
            let ends = ends.get(&*hold.granted.actor).map_or(&[][..], Vec::as_slice);
            let end = ends.get(ends.partition_point(|end| end.t_ns < hold.granted.t_ns));
            hold.ceased = hold.ceased.into_iter().chain(end.copied()).min_by_key(|event| event.t_ns);
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
