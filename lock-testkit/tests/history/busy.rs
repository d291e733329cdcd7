use lock_testkit::history::Observable;

use super::{assert_good, times};

/// `b` is refused: it asks at 50, and hears it at 60.
fn refused(before: &str) -> String {
    format!("{before}\n50 b acquire invoke hold=2\n60 b acquire busy hold=2")
}

#[test]
fn a_busy_that_nobody_accounts_for_is_unjustified() {
    for bad in [
        "",
        // Given back before; found lost before; of another key.
        "10 a acquire ok hold=1\n 20 a release invoke hold=1\n 49 a release ok hold=1",
        "10 a acquire ok hold=1\n 20 a release invoke hold=1\n 49 a release not_held hold=1",
        "10 a acquire ok hold=1\n 20 a renew not_held hold=1",
        "10 a acquire ok hold=1 key=other",
        // Refused and failed before.
        "10 a acquire invoke hold=1\n 20 a acquire fail hold=1",
        "10 a acquire invoke hold=1\n 20 a acquire busy hold=1\n 5 c acquire ok hold=3\n 15 c stop ok hold=3\n 16 c free ok",
        // Killed, or of unknown effect, and found free since.
        "10 a acquire ok hold=1 deadline=20\n 15 a stop ok\n 30 z free ok",
        "10 a acquire invoke hold=1\n 20 a acquire unknown hold=1\n 30 z free ok",
        "10 a acquire invoke hold=1\n 20 a stop ok\n 30 z free ok",
        // Granted after.
        "61 a acquire invoke hold=1\n 62 a acquire ok hold=1",
    ] {
        assert_eq!(times(Observable::UnjustifiedBusy, &refused(bad)), [[50, 60]], "{bad}");
    }
}

#[test]
fn a_busy_is_justified_by_whatever_may_have_been_there() {
    for good in [
        // Held until the very instant, or from the very last one.
        "10 a acquire ok hold=1\n 20 a release invoke hold=1\n 50 a release ok hold=1",
        "60 a acquire invoke hold=1\n 70 a acquire ok hold=1",
        // Its deadline has passed, or its holder is gone, but the store may keep it longer.
        "10 a acquire ok hold=1 deadline=20",
        "10 a acquire ok hold=1 deadline=20\n 15 a stop ok",
        // The release, or the acquisition, of unknown effect.
        "10 a acquire ok hold=1\n 20 a release invoke hold=1\n 30 a release unknown hold=1",
        "10 a acquire invoke hold=1\n 20 a acquire unknown hold=1",
        "10 a acquire invoke hold=1",
        // Found free before it was begun.
        "10 z free ok\n 20 a acquire invoke hold=1\n 30 a acquire ok hold=1",
        // A request under way is not settled by what was found meanwhile.
        "10 a acquire invoke hold=1\n 20 z free ok\n 70 a acquire ok hold=1",
        // A waiter with a place in the queue, who is refused in the end.
        "10 a acquire invoke hold=1\n 55 a acquire busy hold=1\n 5 c acquire ok hold=3",
        // Its own other hold.
        "10 b acquire ok hold=1",
    ] {
        assert_good(Observable::UnjustifiedBusy, &refused(good));
    }
    // Two who refuse each other, as in a split vote.
    let lines =
        "10 a acquire invoke hold=1\n 11 b acquire invoke hold=2\n 20 a acquire busy hold=1\n 21 b acquire busy hold=2";
    assert_good(Observable::UnjustifiedBusy, lines);
}
