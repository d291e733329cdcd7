//! How often a fault strikes, until when, and which of two takes a request.

use lock_testkit::fault::Request;

use crate::ground::{Client, pair, until_seen};

#[test]
fn a_fault_may_be_for_every_request_until_it_is_released() {
    let (_server, proxy) = pair();
    let cut = proxy.when(Request::command("INCR")).every_time().cut();
    for _ in 0..3 {
        let mut client = Client::connect(proxy.addr());
        client.send("INCR a");
        client.assert_cut();
    }
    assert_eq!(cut.times_seen(), 3);
    cut.release();
    assert_eq!(Client::connect(proxy.addr()).ask("INCR a").unwrap(), ":1");
}

#[test]
fn a_fault_whose_handle_is_dropped_ends() {
    let (_server, proxy) = pair();
    let mut client = Client::connect(proxy.addr());
    let held = proxy.when(Request::any()).hold_request();
    client.send("INCR a");
    until_seen(&held);
    drop(held);
    assert_eq!(client.line().unwrap(), ":1");
    drop(proxy.when(Request::any()).cut());
    assert_eq!(client.ask("INCR a").unwrap(), ":2");
}

#[test]
fn the_fault_that_was_armed_first_takes_the_request() {
    let (_server, proxy) = pair();
    let mut client = Client::connect(proxy.addr());
    let first = proxy.when(Request::command("INCR")).hold_reply();
    let second = proxy.when(Request::any()).hold_request();
    client.send("INCR a");
    until_seen(&first);
    assert_eq!(second.times_seen(), 0);
    first.release();
    assert_eq!(client.line().unwrap(), ":1");
    client.send("INCR a");
    until_seen(&second);
}
