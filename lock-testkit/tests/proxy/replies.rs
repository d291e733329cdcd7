//! Replies that are held or lost.

use std::thread;

use lock_testkit::fault::Request;

use crate::ground::{A_WHILE, Client, pair, stored, until, until_seen};

#[test]
fn a_held_reply_comes_late_but_its_request_was_applied() {
    let (server, proxy) = pair();
    let mut client = Client::connect(proxy.addr());
    let held = proxy.when(Request::command("INCR")).hold_reply();
    client.send("SET a 6");
    client.send("INCR a");
    client.send("SET b 1");
    until_seen(&held);
    assert_eq!(client.line().unwrap(), "+OK");
    client.assert_silent();
    assert_eq!(stored(&server, "a").unwrap(), "7");
    until(|| stored(&server, "b").is_some());
    held.release();
    assert_eq!((client.line().unwrap(), client.line().unwrap()), (":7".into(), "+OK".into()));
}

#[test]
fn a_reply_is_not_seen_before_the_server_has_answered() {
    let (server, proxy) = pair();
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.ask("SET a 1").unwrap(), "+OK");
    let held = proxy.when(Request::command("INCR")).hold_reply();
    server.stop().unwrap();
    client.send("INCR a");
    until(|| proxy.count("INCR") == 1);
    thread::sleep(A_WHILE);
    assert_eq!(held.times_seen(), 0);
    server.cont().unwrap();
    until_seen(&held);
}

#[test]
fn a_lost_reply_takes_all_behind_it_and_the_connection() {
    let (server, proxy) = pair();
    let mut client = Client::connect(proxy.addr());
    let lost = proxy.when(Request::command("INCR")).lose_reply();
    client.send("SET a 6");
    client.send("INCR a");
    client.send("ECHO behind");
    assert_eq!(client.line().unwrap(), "+OK", "what came before is delivered");
    client.assert_cut();
    until_seen(&lost);
    assert_eq!(stored(&server, "a").unwrap(), "7");
    assert_eq!(Client::connect(proxy.addr()).ask("INCR a").unwrap(), ":8", "one reply was to be lost");
}

#[test]
fn requests_inside_a_transaction_are_requests() {
    let (_server, proxy) = pair();
    let mut client = Client::connect(proxy.addr());
    let held = proxy.when(Request::command("EXEC")).hold_reply();
    for (command, reply) in [("MULTI", "+OK"), ("INCR a", "+QUEUED"), ("INCR a", "+QUEUED")] {
        assert_eq!(client.ask(command).unwrap(), reply);
    }
    client.send("EXEC");
    until_seen(&held);
    client.assert_silent();
    held.release();
    assert_eq!([client.line().unwrap(), client.line().unwrap(), client.line().unwrap()], ["*2", ":1", ":2"]);
}
