use lock_testkit::history::Observable;

use super::{assert_good, times};

#[test]
fn two_holders_at_once_overlap() {
    let lines = "
        10 a acquire ok hold=1 deadline=100
        20 b acquire ok hold=2 deadline=100
        30 a release invoke hold=1
        40 b release invoke hold=2";
    assert_eq!(times(Observable::RawOverlap, lines), [[10, 20, 30, 40]]);
    assert_eq!(times(Observable::InLeaseOverlap, lines), [[10, 20, 30, 40]]);
}

#[test]
fn holders_one_after_the_other_do_not_overlap() {
    for lines in [
        "10 a acquire ok hold=1 deadline=100
         20 a release invoke hold=1
         20 b acquire ok hold=2 deadline=100",
        "10 a acquire ok hold=1 deadline=100
         20 a stop ok hold=1
         30 b acquire ok hold=2 deadline=100",
        // The process was killed.
        "10 a acquire ok hold=1 deadline=100
         20 a stop ok
         30 b acquire ok hold=2 deadline=100",
        "10 a acquire ok hold=1 deadline=100
         15 b acquire ok hold=2 deadline=100 key=other",
        // An owner may hold twice.
        "10 a acquire ok hold=1 deadline=100 owner=o
         15 b acquire ok hold=2 deadline=100 owner=o",
        // It was never granted.
        "10 a acquire ok hold=1 deadline=100
         15 b acquire busy hold=2",
    ] {
        assert_good(Observable::RawOverlap, lines);
        assert_good(Observable::InLeaseOverlap, lines);
    }
}

#[test]
fn a_hold_past_its_deadline_overlaps_raw_only() {
    let lines = "
        10 a acquire ok hold=1 deadline=50
        60 b acquire ok hold=2 deadline=100
        70 a release invoke hold=1";
    assert_eq!(times(Observable::RawOverlap, lines), [[10, 60, 70]]);
    assert_good(Observable::InLeaseOverlap, lines);
}

#[test]
fn a_renewal_moves_the_deadline_unless_it_came_too_late() {
    let with =
        |renewal: &str| format!("10 a acquire ok hold=1 deadline=50\n{renewal}\n70 b acquire ok hold=2 deadline=100");
    assert_eq!(times(Observable::InLeaseOverlap, &with("40 a renew ok hold=1 deadline=90")), [[10, 70]]);
    assert_good(Observable::InLeaseOverlap, &with("55 a renew ok hold=1 deadline=90"));
    assert_good(Observable::InLeaseOverlap, &with("40 a renew unknown hold=1 deadline=90"));
    // Shortened by an extension, and lost by a renewal.
    assert_good(Observable::InLeaseOverlap, &with("40 a renew ok hold=1 deadline=45"));
    let lost = "40 a renew ok hold=1 deadline=90\n60 a renew not_held hold=1\n65 a renew ok hold=1 deadline=99";
    assert_good(Observable::InLeaseOverlap, &with(lost));
}

#[test]
fn an_overlap_is_found_behind_short_holds_and_holds_of_the_same_owner() {
    let lines = "
        10 a acquire ok hold=1 deadline=900
        20 b acquire ok hold=2 deadline=900
        21 b release invoke hold=2
        30 c acquire ok hold=3 deadline=900
        31 c release invoke hold=3";
    assert_eq!(times(Observable::RawOverlap, lines), [[10, 20, 21], [10, 30, 31]]);
    let lines = "
        10 a acquire ok hold=1 deadline=500 owner=o
        20 b acquire ok hold=2 deadline=400 owner=p
        30 c acquire ok hold=3 deadline=900 owner=o
        40 d acquire ok hold=4 deadline=900 owner=o";
    assert_eq!(times(Observable::InLeaseOverlap, lines), [[10, 20], [20, 30], [20, 40]]);
    let lines = "
        10 a acquire ok hold=1 deadline=500 owner=o
        20 b acquire ok hold=2 deadline=900 owner=p
        30 c acquire ok hold=3 deadline=900 owner=p";
    assert_eq!(times(Observable::InLeaseOverlap, lines), [[10, 20], [10, 30]]);
    // An actor that ended before begins anew.
    let lines = "5 a stop ok\n 10 a acquire ok hold=1\n 20 b acquire ok hold=2";
    assert_eq!(times(Observable::RawOverlap, lines), [[10, 20]]);
}

#[test]
fn an_interval_ends_with_the_actor_and_touches_the_next() {
    // Killed at 30; the next grant at the same instant only touches.
    let with = |grant: u64| {
        format!("10 a acquire ok hold=1 deadline=100\n30 a stop ok\n{grant} b acquire ok hold=2 deadline=100")
    };
    for observable in [Observable::RawOverlap, Observable::InLeaseOverlap] {
        assert_eq!(times(observable, &with(29)), [[10, 29, 30]]);
        assert_good(observable, &with(30));
    }
    // As does a grant at the very deadline.
    let at = |grant: u64| format!("10 a acquire ok hold=1 deadline=50\n{grant} b acquire ok hold=2 deadline=100");
    assert_eq!(times(Observable::InLeaseOverlap, &at(49)), [[10, 49]]);
    assert_good(Observable::InLeaseOverlap, &at(50));
    // An attempt of unknown effect is no hold.
    let unknown = "10 a acquire invoke hold=1\n11 a acquire unknown hold=1\n20 b acquire ok hold=2 deadline=100";
    assert_good(Observable::RawOverlap, unknown);
    assert_good(Observable::InLeaseOverlap, unknown);
}

#[test]
fn a_holder_who_affirms_past_his_deadline_held_until_then() {
    let with = |affirmed: &str| {
        format!(
            "10 a acquire ok hold=1 deadline=50\n{affirmed}\n60 b acquire ok hold=2 deadline=90\n95 a stop ok hold=1"
        )
    };
    assert_eq!(times(Observable::InLeaseOverlap, &with("70 a affirm ok hold=1 deadline=110")), [[10, 60, 95]]);
    assert_eq!(times(Observable::InLeaseOverlap, &with("70 a affirm ok hold=1")), [[10, 60, 95]]);
    // A renewal that came too late revives nothing, but the belief does.
    let revived = "55 a renew ok hold=1 deadline=99\n56 a affirm ok hold=1 deadline=99";
    assert_eq!(times(Observable::InLeaseOverlap, &with(revived)), [[10, 60, 95]]);

    assert_good(Observable::InLeaseOverlap, &with("40 a affirm ok hold=1 deadline=50"));
    assert_good(Observable::InLeaseOverlap, &with("55 a affirm ok hold=1 deadline=58"));
    // His deadline had passed when it was recorded; he had stopped before; he was told of the loss after.
    assert_good(Observable::InLeaseOverlap, &with("70 a affirm ok hold=1 deadline=70"));
    assert_good(Observable::InLeaseOverlap, &with("45 a stop ok hold=1\n70 a affirm ok hold=1 deadline=110"));
    assert_good(Observable::InLeaseOverlap, &with("40 a affirm ok hold=1 deadline=99\n45 a renew not_held hold=1"));
    // A belief moves no lease: what is gone after the deadline was not stolen.
    let late = with("70 a affirm ok hold=1 deadline=110\n 75 a renew not_held hold=1");
    assert_good(Observable::Stolen, &late);
}

#[test]
fn keys_do_not_mix() {
    let lines = "
        10 a acquire ok hold=1 deadline=50
        11 a acquire ok hold=2 deadline=90 key=other
        20 b acquire ok hold=3 deadline=90 key=other
        60 b acquire ok hold=4 deadline=90";
    assert_eq!(times(Observable::InLeaseOverlap, lines), [[11, 20]]);
}
