use lock_testkit::history::{Event, Observable, Op, Phase};

const HOLDS: u64 = 100_000;

/// A quadratic check would need minutes for this: every hold overlaps all others, and each is renewed, written by and looked
/// for.
#[test]
fn a_hundred_thousand_holds_that_all_overlap_are_checked() {
    let end = HOLDS * 10;
    let mut events = Vec::new();
    for hold in 0..HOLDS {
        let start = hold * 10;
        for (t_ns, op, phase) in [
            (start, Op::Acquire, Phase::Invoke),
            (start + 1, Op::Acquire, Phase::Ok),
            (start + 2, Op::Renew, Phase::Ok),
            (start + 3, Op::Write, Phase::Ok),
            (end + start, Op::Release, Phase::Invoke),
            (end + start + 1, Op::Release, Phase::Ok),
        ] {
            let mut event = event(t_ns, hold, op, phase);
            event.token = Some(hold);
            event.deadline_ns = Some(end * 3);
            events.push(event);
        }
        events.push(event(start + 4, HOLDS + hold, Op::Acquire, Phase::Invoke));
        events.push(event(start + 5, HOLDS + hold, Op::Acquire, Phase::Busy));
        for op in [Op::Free, Op::Count, Op::Inspect] {
            let mut event = Event::new(start + 6, "a", "k", op, Phase::Ok);
            event.deadline_ns = Some(start + 7);
            events.push(event);
        }
    }
    // Sorted once here, and not by each check.
    events.sort_by_key(|event| event.t_ns);
    for observable in Observable::ALL {
        let expected = match observable {
            Observable::RawOverlap | Observable::InLeaseOverlap => HOLDS - 1,
            // It is always found to be zero.
            Observable::CountCorruption => HOLDS,
            _ => 0,
        };
        assert_eq!(observable.find(&events).len() as u64, expected, "{observable}");
    }
}

/// The same where one hold is renewed as often as there are others, which are all compared with it.
#[test]
fn a_hundred_thousand_renewals_of_one_hold_are_checked_beside_as_many_holds() {
    let mut events = Vec::new();
    let mut lasting = |t_ns, hold, op, phase, deadline_ns| {
        let mut event = event(t_ns, hold, op, phase);
        event.deadline_ns = Some(deadline_ns);
        events.push(event);
    };
    lasting(0, 0, Op::Acquire, Phase::Ok, 50);
    for hold in 1..=HOLDS {
        let start = hold * 40;
        lasting(start, 0, Op::Renew, Phase::Ok, start + 50);
        lasting(start + 1, hold, Op::Acquire, Phase::Ok, start + 2);
        lasting(start + 3, hold, Op::Release, Phase::Invoke, 0);
        lasting(start + 4, hold, Op::Release, Phase::Ok, 0);
    }
    for observable in [Observable::RawOverlap, Observable::InLeaseOverlap, Observable::DishonestOutcome] {
        assert_eq!(observable.find(&events).len() as u64, HOLDS, "{observable}");
    }
}

fn event(t_ns: u64, hold: u64, op: Op, phase: Phase) -> Event {
    let mut event = Event::new(t_ns, "a", if op == Op::Write { "r" } else { "k" }, op, phase);
    event.hold = Some(hold);
    event
}
