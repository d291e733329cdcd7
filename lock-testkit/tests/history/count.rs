use lock_testkit::history::Observable;

use super::{assert_good, times};

/// `o` holds twice from 30 on; the second is given back from 50 to 60.
fn counted(at: u64, count: u64) -> String {
    format!(
        "10 a acquire invoke hold=1
         20 a acquire ok hold=1 owner=o deadline=100
         25 a acquire invoke hold=2
         30 a acquire ok hold=2 owner=o deadline=100
         50 a release invoke hold=2
         60 a release ok hold=2
         {at} s count ok owner=o value={count}"
    )
}

#[test]
fn a_count_is_that_of_the_holds() {
    for (at, least, most) in [(5, 0, 0), (22, 1, 1), (27, 1, 2), (40, 2, 2), (55, 1, 2), (70, 1, 1), (110, 0, 1)] {
        for count in 0..4 {
            if (least..=most).contains(&count) {
                assert_good(Observable::CountCorruption, &counted(at, count));
            } else {
                assert_eq!(times(Observable::CountCorruption, &counted(at, count)), [[at]], "{count} at {at}");
            }
        }
    }
}

#[test]
fn a_count_knows_owners_keys_and_unknown_effects() {
    // Another owner's, and another key's.
    assert_eq!(
        times(Observable::CountCorruption, &counted(40, 2).replace("count ok owner=o", "count ok owner=p")),
        [[40]]
    );
    assert_eq!(times(Observable::CountCorruption, &counted(40, 2).replace("count ok", "count ok key=other")), [[40]]);
    // A retried acquire that counted twice, and a retried release that did.
    assert_eq!(times(Observable::CountCorruption, &counted(70, 2)), [[70]]);
    assert_eq!(times(Observable::CountCorruption, &counted(70, 0)), [[70]]);
    // One who names no owner is his own.
    let alone = "10 a acquire ok hold=1\n 20 s count ok owner=a value=1";
    assert_good(Observable::CountCorruption, alone);
    assert_eq!(times(Observable::CountCorruption, &alone.replace("value=1", "value=0")), [[20]]);
    // An acquisition and a release of unknown effect, and one whose actor was killed.
    let unknown = |value: u64| {
        format!("10 a acquire invoke hold=1\n 20 a acquire unknown hold=1\n 30 s count ok owner=a value={value}")
    };
    assert_good(Observable::CountCorruption, &unknown(0));
    assert_good(Observable::CountCorruption, &unknown(1));
    assert_eq!(times(Observable::CountCorruption, &unknown(2)), [[30]]);
    let killed = |value: u64| format!("10 a acquire ok hold=1\n 20 a stop ok\n 30 s count ok owner=a value={value}");
    assert_good(Observable::CountCorruption, &killed(0));
    assert_good(Observable::CountCorruption, &killed(1));
    let unknown = counted(70, 2).replace("60 a release ok", "60 a release unknown");
    assert_good(Observable::CountCorruption, &unknown);
}
