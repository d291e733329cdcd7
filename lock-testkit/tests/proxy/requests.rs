//! Requests that are held or cut.

use std::io;
use std::thread;

use lock_testkit::fault::Request;

use crate::ground::{A_WHILE, Client, pair, stored, until, until_seen};

#[test]
fn a_held_request_reaches_the_server_only_when_released() {
    let (server, proxy) = pair();
    let (mut client, mut other) = (Client::connect(proxy.addr()), Client::connect(proxy.addr()));
    let held = proxy.when(Request::command("SET").with_argument("a")).hold_request();
    client.send("SET b 1");
    client.send("SET a 1");
    client.send("SET c 1");
    until_seen(&held);
    assert_eq!(client.line().unwrap(), "+OK");
    client.assert_silent();
    assert_eq!(["a", "b", "c"].map(|key| stored(&server, key)), [None, Some("1".into()), None]);
    assert_eq!(other.ask("SET a 2").unwrap(), "+OK", "another connection passes, also with a request that matches");

    held.release();
    assert_eq!((client.line().unwrap(), client.line().unwrap()), ("+OK".into(), "+OK".into()));
    assert_eq!((stored(&server, "a"), stored(&server, "c")), (Some("1".into()), Some("1".into())));
    assert_eq!(client.ask("SET a 3").unwrap(), "+OK", "one request was to be held");
    assert_eq!(held.times_seen(), 1);
}

#[test]
fn a_held_request_lands_although_its_client_has_gone() {
    let (server, proxy) = pair();
    let held = proxy.when(Request::command("SET")).hold_request();
    let mut client = Client::connect(proxy.addr());
    client.send("SET a 1");
    client.send("SET b 1");
    until_seen(&held);
    drop(client);
    thread::sleep(A_WHILE);
    assert_eq!(stored(&server, "a"), None);
    held.release();
    until(|| stored(&server, "a").is_some() && stored(&server, "b").is_some());
}

#[test]
fn a_cut_request_is_not_applied_but_those_before_it_are() {
    let (server, proxy) = pair();
    let mut client = Client::connect(proxy.addr());
    let cut = proxy.when(Request::command("INCR")).cut();
    client.send("SET a 6");
    client.send("INCR a");
    until_seen(&cut);
    until(|| stored(&server, "a").is_some());
    let end = loop {
        match client.line() {
            Ok(reply) => assert_eq!(reply, "+OK"),
            Err(end) => break end,
        }
    };
    assert!(matches!(end.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset), "{end}");
    assert_eq!(stored(&server, "a").unwrap(), "6");
}
