use lock_testkit::history::Observable;

use super::{assert_good, times};

#[test]
fn tokens_grow_in_the_order_of_the_grants() {
    let second = |token: u64| {
        format!(
            "10 a acquire invoke hold=1
             20 a acquire ok hold=1 token=7
             30 b acquire invoke hold=2
             40 b acquire ok hold=2 token={token}"
        )
    };
    assert_good(Observable::TokenRegression, &second(8));
    assert_eq!(times(Observable::TokenRegression, &second(7)), [[20, 30, 40]]);
    assert_eq!(times(Observable::TokenRegression, &second(6)), [[20, 30, 40]]);
    // With a greater one from another key in between, and with a good one in between.
    assert_good(Observable::TokenRegression, &(second(8) + "\n25 c acquire ok hold=3 token=99 key=other"));
    let lines = second(9) + "\n50 c acquire invoke hold=3\n60 c acquire ok hold=3 token=8";
    assert_eq!(times(Observable::TokenRegression, &lines), [[40, 50, 60]]);
}

#[test]
fn tokens_of_grants_that_were_under_way_together_may_come_in_any_order_but_differ() {
    let second = |token: u64, owner: &str| {
        format!(
            "10 a acquire invoke hold=1
             20 b acquire invoke hold=2
             30 b acquire ok hold=2 token=7 owner=o
             40 a acquire ok hold=1 token={token} owner={owner}"
        )
    };
    assert_good(Observable::TokenRegression, &second(6, "p"));
    assert_good(Observable::TokenRegression, &second(8, "p"));
    assert_good(Observable::TokenRegression, &second(7, "o"));
    assert_eq!(times(Observable::TokenRegression, &second(7, "p")).len(), 1);
}

#[test]
fn a_token_stays_the_same_only_while_its_owner_holds_on() {
    let third = |asked: u64| {
        format!(
            "10 a acquire invoke hold=1
             20 a acquire ok hold=1 token=7 owner=o
             30 a acquire invoke hold=2
             40 a acquire ok hold=2 token=7 owner=o
             50 a release invoke hold=1
             60 a release ok hold=1
             70 a release invoke hold=2
             80 a release ok hold=2
             {asked} b acquire invoke hold=3
             100 b acquire ok hold=3 token=7 owner=o"
        )
    };
    // The first hold is given back, the second is not.
    assert_good(Observable::TokenRegression, &third(65));
    assert_eq!(times(Observable::TokenRegression, &third(85)), [[20, 85, 100]]);
    // The release of the second may not have worked.
    let unknown = third(85).replace("80 a release ok", "80 a release unknown");
    assert_good(Observable::TokenRegression, &unknown);
}
