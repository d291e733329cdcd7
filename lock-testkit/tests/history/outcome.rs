use lock_testkit::history::Observable;

use super::{assert_good, times};

#[test]
fn a_probe_that_does_not_succeed_in_time_is_stuck() {
    let outcome = |outcome: &str| format!("10 p probe invoke deadline=100\n{outcome}");
    assert_good(Observable::Stuck, &outcome("100 p probe ok"));
    assert_eq!(times(Observable::Stuck, &outcome("101 p probe ok")), [[10, 101]]);
    assert_eq!(times(Observable::Stuck, &outcome("90 p probe busy")), [[10, 90]]);
    assert_eq!(times(Observable::Stuck, &outcome("90 q probe ok")), [[10]]);
}

#[test]
fn a_lock_that_is_gone_before_its_deadline_was_stolen() {
    let answer = |answer: &str| format!("10 a acquire ok hold=1 deadline=50\n{answer}");
    assert_eq!(times(Observable::Stolen, &answer("40 a renew not_held hold=1")), [[10, 40]]);
    assert_eq!(
        times(Observable::Stolen, &answer("30 a release invoke hold=1\n 40 a release not_held hold=1")),
        [[10, 40]]
    );
    let renewed = "30 a renew ok hold=1 deadline=90\n 60 a renew not_held hold=1";
    assert_eq!(times(Observable::Stolen, &answer(renewed)), [[10, 60]]);

    assert_good(Observable::Stolen, &answer("50 a renew not_held hold=1"));
    assert_good(Observable::Stolen, &answer("30 a release invoke hold=1\n 60 a release not_held hold=1"));
    assert_good(Observable::Stolen, &answer("30 a release invoke hold=1\n 40 a release ok hold=1"));
    // Its own release was faster than its renewal, and its first release worked although the reply was lost.
    assert_good(
        Observable::Stolen,
        &answer("30 a release invoke hold=1\n 35 a renew not_held hold=1\n 40 a release ok hold=1"),
    );
    assert_good(
        Observable::Stolen,
        &answer("30 a release invoke hold=1\n 35 a release unknown hold=1\n 40 a release not_held hold=1"),
    );
}

#[test]
fn a_release_must_not_claim_what_was_anothers() {
    let answer = |answer: &str, b_deadline: u64| {
        format!(
            "10 a acquire ok hold=1 deadline=50
             60 b acquire ok hold=2 deadline={b_deadline}
             70 a release invoke hold=1
             80 a release {answer} hold=1"
        )
    };
    assert_eq!(times(Observable::DishonestOutcome, &answer("ok", 100)), [[10, 60, 80]]);
    assert_good(Observable::DishonestOutcome, &answer("not_held", 100));
    assert_good(Observable::DishonestOutcome, &answer("unknown", 100));
    // The other's lease may have been over by then, too.
    assert_good(Observable::DishonestOutcome, &answer("ok", 75));
    // Both within their leases: an overlap, and no telling whose it was.
    let lines = answer("ok", 100).replace("deadline=50", "deadline=100");
    assert_good(Observable::DishonestOutcome, &lines);
    // Past the deadline, but the entry was still there.
    assert_good(
        Observable::DishonestOutcome,
        "10 a acquire ok hold=1 deadline=50\n 60 a release invoke hold=1\n 70 a release ok hold=1",
    );
}

#[test]
fn a_lock_is_not_released_after_it_was_told_to_be_gone() {
    let answers = |answers: &str| format!("10 a acquire ok hold=1 deadline=50\n{answers}");
    for bad in [
        "20 a renew not_held hold=1\n 30 a release invoke hold=1\n 40 a release ok hold=1",
        "20 a release invoke hold=1\n 30 a release ok hold=1\n 40 a release ok hold=1",
        "20 a release invoke hold=1\n 30 a release not_held hold=1\n 40 a release ok hold=1",
    ] {
        assert_eq!(times(Observable::DishonestOutcome, &answers(bad)).len(), 1, "{bad}");
    }
    for good in [
        "20 a release invoke hold=1\n 30 a release unknown hold=1\n 40 a release ok hold=1",
        "20 a release invoke hold=1\n 25 a renew not_held hold=1\n 40 a release ok hold=1",
        "20 a release invoke hold=1\n 30 a release ok hold=1\n 40 a release not_held hold=1",
    ] {
        assert_good(Observable::DishonestOutcome, &answers(good));
    }
}

#[test]
fn a_refused_lock_must_not_be_ours() {
    let outcome = |phase: &str| format!("10 a acquire invoke hold=1\n20 a acquire {phase} hold=1\n30 a inspect ok");
    for dishonest in ["busy", "fail"] {
        assert_eq!(times(Observable::DishonestOutcome, &outcome(dishonest)), [[20, 30]]);
    }
    assert_good(Observable::DishonestOutcome, &outcome("unknown"));
    assert_good(Observable::DishonestOutcome, &outcome("ok"));
    // Another attempt of the same actor may be what the store shows.
    assert_good(Observable::DishonestOutcome, &(outcome("busy") + "\n25 a acquire invoke hold=2"));
    let released = "20 a acquire ok hold=1\n 30 a release invoke hold=1\n 40 a release ok hold=1\n 50 a inspect ok";
    assert_eq!(times(Observable::DishonestOutcome, released), [[40, 50]]);
}

#[test]
fn a_second_probe_does_not_hide_that_the_first_got_no_answer() {
    let lines = "10 p probe invoke deadline=100\n20 p probe invoke deadline=100\n30 p probe ok";
    assert_eq!(times(Observable::Stuck, lines), [[10]]);
    assert_good(
        Observable::Stuck,
        &(lines.to_owned().replace("key", "k") + "\n5 q probe invoke\n6 q probe ok")
            .replace("20 p probe invoke deadline=100\n30 p", "15 p"),
    );
}

#[test]
fn a_release_that_had_no_effect_does_not_excuse_the_next() {
    let answers = |first: &str| {
        format!(
            "10 a acquire ok hold=1 deadline=90
             30 a release invoke hold=1
             40 a release {first} hold=1
             50 a release not_held hold=1"
        )
    };
    assert_eq!(times(Observable::Stolen, &answers("fail")), [[10, 50]]);
    assert_good(Observable::Stolen, &answers("unknown"));
}

#[test]
fn a_hold_of_the_same_owner_does_not_hide_that_another_held() {
    let lines = "
        10 a acquire ok hold=1 deadline=50 owner=o
        60 b acquire ok hold=2 deadline=100 owner=p
        65 c acquire ok hold=3 deadline=200 owner=o
        70 a release invoke hold=1
        80 a release ok hold=1";
    assert_eq!(times(Observable::DishonestOutcome, lines), [[10, 60, 80]]);
    assert_good(Observable::DishonestOutcome, &lines.replace("owner=p", "owner=o"));
}
