use std::time::Duration;

use super::clock::{Nanos, show};

/// What came of one seed.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What must not be, in words.
    pub faults: Vec<String>,
    /// How often the lock was held.
    pub holds: usize,
    /// How often two held at once; each is a fault as well.
    pub overlaps: usize,
    /// What happened, in order, if that was asked for.
    pub trace: Vec<String>,
}

/// A time in which somebody acted under the lock: from the grant until it was given back, told of as lost, or past its
/// deadline, whichever came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hold {
    /// By the world's time.
    pub from: Nanos,
    /// By the world's time. Before `from`, the grant came past its deadline.
    pub until: Nanos,
    /// Who held, by number.
    pub holder: usize,
}

impl Report {
    /// Counts the holds of one lock, and adds as faults those that overlap or began past their deadline. `who` is what a
    /// holder is called, such as `client`.
    pub fn judge(&mut self, who: &str, mut holds: Vec<Hold>) {
        holds.sort_unstable();
        self.holds += holds.len();
        for (at, first) in holds.iter().enumerate() {
            let Hold { from, until, holder } = *first;
            if until < from {
                self.faults.push(format!("{who} {holder} is told at {} that it holds, past its deadline", show(from)));
            }
            for second in holds[at + 1..].iter().take_while(|second| second.from < until) {
                let during = Duration::from_nanos((until.min(second.until) - second.from).unsigned_abs());
                self.overlaps += 1;
                self.faults.push(format!(
                    "{who} {holder} has held since {} and {who} {} since {}: both for {during:?}",
                    show(from),
                    second.holder,
                    show(second.from),
                ));
            }
        }
    }
}

#[test]
fn holds_that_overlap_or_begin_past_their_deadline_are_faults_and_those_that_touch_are_not() {
    let hold = |holder, from, until| Hold { from, until, holder };
    let mut report = Report::default();
    report.judge("actor", vec![hold(1, 10, 20), hold(0, 0, 10), hold(2, 20, 30)]);
    assert_eq!((report.holds, report.overlaps, report.faults.len()), (3, 0, 0));

    report
        .judge("actor", vec![hold(1, 40_000_000, 60_000_000), hold(0, 0, 40_000_001), hold(2, 60_000_001, 60_000_000)]);
    assert_eq!((report.holds, report.overlaps), (6, 1));
    assert_eq!(
        report.faults,
        [
            "actor 0 has held since     0.000000 ms and actor 1 since    40.000000 ms: both for 1ns",
            "actor 2 is told at    60.000001 ms that it holds, past its deadline",
        ]
    );
}
