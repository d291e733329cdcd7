use lock_testkit::history::Observable;

use super::{assert_good, times};

/// `b` waits from 10 on, and is the only one who must have the lock that is free at 30 by 50.
fn waiting(rest: &str) -> String {
    format!("10 b acquire invoke hold=2\n30 b free ok deadline=50\n{rest}")
}

#[test]
fn a_waiter_who_sleeps_past_its_bound_has_lost_a_wake_up() {
    assert_eq!(times(Observable::LostWakeup, &waiting("51 b acquire ok hold=2")), [[10, 30, 51]]);
    // It gave up later; it never had an answer; it was killed later.
    assert_eq!(times(Observable::LostWakeup, &waiting("90 b acquire busy hold=2")), [[10, 30, 90]]);
    assert_eq!(times(Observable::LostWakeup, &waiting("90 z stop ok")), [[10, 30]]);
    assert_eq!(times(Observable::LostWakeup, &waiting("90 b stop ok")), [[10, 30]]);
    // Another had it only after the bound.
    assert_eq!(times(Observable::LostWakeup, &waiting("60 c acquire ok hold=3\n90 z stop ok")), [[10, 30]]);
    // One who asks again and again waits, too.
    let again = "35 b acquire busy hold=2\n36 b acquire invoke hold=3\n55 b acquire ok hold=3";
    assert_eq!(times(Observable::LostWakeup, &waiting(again)), [[30, 36, 55]]);
    // Each time that it was free counts, whatever the order of the bounds.
    let twice = waiting("20 b free ok deadline=70\n90 b acquire ok hold=2");
    assert_eq!(times(Observable::LostWakeup, &twice), [[10, 30, 90], [10, 20, 90]]);
}

#[test]
fn a_waiter_who_was_granted_or_left_in_time_has_lost_nothing() {
    for good in [
        "50 b acquire ok hold=2",
        // Noted after it had been granted.
        "29 b acquire ok hold=2\n 90 z stop ok",
        // It gave up, was killed, or the history ends before.
        "50 b acquire busy hold=2\n 90 z stop ok",
        "40 b stop ok\n 90 z stop ok",
        "50 z stop ok",
        // It was not alone.
        "40 c acquire ok hold=3\n 60 b acquire ok hold=2",
    ] {
        assert_good(Observable::LostWakeup, &waiting(good));
    }
    // It waits for another key, and nobody is bound to have what is merely free.
    assert_good(Observable::LostWakeup, &waiting("90 b acquire ok hold=2").replace("hold=2", "hold=2 key=other"));
    assert_good(Observable::LostWakeup, &waiting("90 b acquire ok hold=2").replace(" deadline=50", ""));
}
