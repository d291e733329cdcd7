//! How long a session is certain to live, from what its server has answered. No I/O, no clock.
//!
//! What makes it subtle (all observed on 3.8): a follower answers reads long after the leader has ended the session, so only
//! an answer that the leader had a part in proves anything: that of a write or of `sync`. The leader checks the session for
//! those, and hears that it is alive only from the follower's own pings, one each half tick. So
//!
//! - a session of `timeout` that was proven by a request sent at `s` lives until `s + timeout / 2`, if it was not silent
//!   before; without the half it has been seen to end early;
//! - and it lives until `r + timeout`, if another request was answered that was sent at `r`, at least `timeout / 4` before
//!   `s`: by then the follower has passed that on. This takes care of a silence.
//!
//! Both assume a tick of at most half the timeout, which is the least that a server grants.

use std::collections::VecDeque;
use std::time::Duration;

use lock_core::Moment;

/// Answers closer to each other than this part of the timeout count as one, so that few are kept.
const GRAIN: u32 = 64;

/// Enough for two timeouts.
const KEPT: usize = 2 * GRAIN as usize;

/// When the requests were sent that a session's server has answered.
#[derive(Debug)]
pub(crate) struct Proofs {
    timeout: Duration,
    /// The leader made the session itself, so it needs nobody to tell it.
    made: Moment,
    answered: VecDeque<Moment>,
}

impl Proofs {
    /// Of a session whose making was asked for at `made`.
    pub(crate) const fn new(timeout: Duration, made: Moment) -> Self {
        Self { timeout, made, answered: VecDeque::new() }
    }

    /// Notes that a request sent at `sent_at` was answered.
    pub(crate) fn record(&mut self, sent_at: Moment) {
        let last = self.answered.back().copied().unwrap_or(self.made);
        if sent_at.saturating_duration_since(last) < self.timeout / GRAIN {
            return;
        }
        if self.answered.len() == KEPT {
            self.answered.pop_front();
        }
        self.answered.push_back(sent_at);
    }

    /// The ttl, counted from `sent_at`, that a write or `sync` sent then has proven. Zero if that is nothing.
    pub(crate) fn ttl(&self, sent_at: Moment) -> Duration {
        let passed_on = |at: &&Moment| at.saturating_add(self.timeout / 4) <= sent_at;
        let before = self.answered.iter().rev().find(passed_on).copied().unwrap_or(self.made);
        // The driver's drift is that of half the timeout.
        let drift = self.timeout / 100 + Duration::from_millis(2);
        let end = before.saturating_add(self.timeout.saturating_sub(drift));
        end.saturating_duration_since(sent_at).min(self.timeout / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(8);

    fn after(start: Moment, millis: u64) -> Moment {
        start.saturating_add(Duration::from_millis(millis))
    }

    /// What is proven at `sent_at`, all in milliseconds since the making.
    fn ttl(answered: &[u64], sent_at: u64) -> u128 {
        let start = Moment::now();
        let mut proofs = Proofs::new(TIMEOUT, start);
        for at in answered {
            proofs.record(after(start, *at));
        }
        proofs.ttl(after(start, sent_at)).as_millis()
    }

    #[test]
    fn half_the_timeout_is_proven_while_requests_are_answered() {
        assert_eq!(ttl(&[], 0), 4_000);
        assert_eq!(ttl(&[1_000, 2_000, 3_000, 4_000, 5_000], 5_000), 4_000);
        assert_eq!(ttl(&[2_000], 4_000), 4_000);
    }

    #[test]
    fn after_a_silence_the_last_answer_before_it_decides() {
        // 8,000 less a drift of 82.
        assert_eq!(ttl(&[], 7_200), 718);
        assert_eq!(ttl(&[10_000], 17_200), 718);
        // The answer just before has not been passed on yet.
        assert_eq!(ttl(&[10_000, 17_000], 17_200), 718);
        assert_eq!(ttl(&[10_000, 15_200], 17_200), 4_000);
        assert_eq!(ttl(&[10_000], 60_000), 0);
    }

    #[test]
    fn little_is_kept_and_nothing_that_matters_is_forgotten() {
        let start = Moment::now();
        let mut proofs = Proofs::new(TIMEOUT, start);
        for at in 0..100_000 {
            proofs.record(after(start, at));
        }
        assert!(proofs.answered.len() <= KEPT);
        assert_eq!(proofs.ttl(after(start, 100_000)), TIMEOUT / 2);
        assert!(proofs.ttl(after(start, 107_000)) < Duration::from_secs(1));
    }

    #[test]
    fn answers_may_come_in_any_order() {
        assert_eq!(ttl(&[5_000, 4_000, 3_000], 7_000), 4_000);
    }
}
