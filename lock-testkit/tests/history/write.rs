use lock_testkit::history::Observable;

use super::{assert_good, times};

#[test]
fn an_update_is_lost_when_another_writes_between_read_and_write() {
    let lines = "
        10 a read ok value=0
        20 b read ok value=0
        30 b write ok value=1
        40 a write ok value=1";
    assert_eq!(times(Observable::LostUpdate, lines), [[10, 30, 40]]);
    assert_good(Observable::LostUpdate, "10 a read ok\n 20 a write ok\n 30 b read ok\n 40 b write ok");
    assert_good(Observable::LostUpdate, "10 a read ok\n 20 b write ok key=other\n 30 a write ok");
    assert_good(Observable::LostUpdate, "10 a read ok\n 20 b write fail\n 30 a write ok");
    assert_good(Observable::LostUpdate, "10 a write ok\n 20 b write ok");
}

#[test]
fn a_fenced_resource_must_not_accept_an_older_token() {
    let third = |phase: &str| {
        format!("10 a write ok token=1\n20 b write ok token=2\n21 b write ok token=2\n30 a write {phase} token=1")
    };
    assert_eq!(times(Observable::StaleWriteAccepted, &third("ok")), [[20, 30]]);
    assert_good(Observable::StaleWriteAccepted, &third("fail"));
}

#[test]
fn a_resource_without_a_fence_accepts_what_one_with_a_fence_refuses() {
    let lines = "
        10 a acquire ok hold=1 token=1
        20 b acquire ok hold=2 token=2
        30 b write ok hold=2 token=2 key=fenced
        31 b write ok hold=2 token=2 key=plain
        40 a write fail hold=1 token=1 key=fenced
        41 a write ok hold=1 token=1 key=plain";
    assert_eq!(times(Observable::StaleWriteAccepted, lines), [[31, 41]]);
}

#[test]
fn without_tokens_the_later_holder_is_the_newer_one() {
    let with = |owners: [&str; 2], writes: &str| {
        format!("10 a acquire ok hold=1{}\n20 b acquire ok hold=2{}\n{writes}", owners[0], owners[1])
    };
    let stale = "30 b write ok hold=2 key=r\n40 a write ok hold=1 key=r";
    assert_eq!(times(Observable::StaleWriteAccepted, &with(["", ""], stale)), [[30, 40]]);
    assert_good(Observable::StaleWriteAccepted, &with([" owner=o", " owner=o"], stale));
    assert_good(
        Observable::StaleWriteAccepted,
        &with(["", ""], "30 a write ok hold=1 key=r\n40 b write ok hold=2 key=r"),
    );
    assert_good(
        Observable::StaleWriteAccepted,
        &with(["", ""], "30 b write ok hold=2 key=r\n40 a write ok hold=1 key=s"),
    );
    assert_good(
        Observable::StaleWriteAccepted,
        &with(["", ""], "30 b write fail hold=2 key=r\n40 a write ok hold=1 key=r"),
    );
    // Of whose grant nothing is known.
    assert_good(Observable::StaleWriteAccepted, "30 b write ok hold=2 key=r\n40 a write ok hold=1 key=r");
}

#[test]
fn the_resource_knows_the_order_of_its_writes_better_than_their_events() {
    let with = |first: &str, second: &str| {
        format!("30 b write ok hold=2 token=2 key=r {first}\n40 a write ok hold=1 token=1 key=r {second}")
    };
    assert_eq!(times(Observable::StaleWriteAccepted, &with("", "")), [[30, 40]]);
    assert_eq!(times(Observable::StaleWriteAccepted, &with("position=1", "position=2")), [[30, 40]]);
    assert_good(Observable::StaleWriteAccepted, &with("position=2", "position=1"));
    // One that lacks it cannot be put between the others.
    assert_eq!(times(Observable::StaleWriteAccepted, &with("position=2", "")), [[30, 40]]);
}
