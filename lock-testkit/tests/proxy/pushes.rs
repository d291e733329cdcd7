//! Pushes, which answer no request, and the confirmations of subscriptions.

use lock_testkit::fault::Request;

use crate::ground::{Client, pair, until, until_seen};

#[test]
fn in_resp3_neither_pushes_nor_confirmations_are_taken_for_replies() {
    let (server, proxy) = pair();
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.ask("HELLO 3").unwrap(), "%7");
    while client.line().unwrap() != "*0" {}

    assert_eq!(client.ask("SET a 5").unwrap(), "+OK");
    let held = proxy.when(Request::command("INCR")).hold_reply();
    client.send("SUBSCRIBE one two");
    client.send("UNSUBSCRIBE two");
    client.send("INCR a");
    for word in ["subscribe", "one", ":1", "subscribe", "two", ":2", "unsubscribe", "two", ":1"] {
        until(|| client.line().unwrap() == word);
    }
    client.assert_silent();
    until_seen(&held);
    held.release();
    assert_eq!(client.line().unwrap(), ":6");

    let held = proxy.when(Request::command("INCR")).hold_reply();
    server.stop().unwrap();
    client.send("INCR a");
    until(|| proxy.count("INCR") == 2);
    server.cont().unwrap();
    until_seen(&held);
    server.command::<u64>(&["PUBLISH", "one", "x"]).unwrap();
    client.assert_silent();
    held.release();
    assert_eq!(client.line().unwrap(), ":7");
    for word in [">3", "message", "one", "x"] {
        until(|| client.line().unwrap() == word);
    }
}

#[test]
fn a_subscription_can_be_held_and_lost_by_its_first_confirmation() {
    for resp in ["2", "3"] {
        let (server, proxy) = pair();
        let mut client = Client::connect(proxy.addr());
        client.ask(&format!("HELLO {resp}")).unwrap();
        while client.line().unwrap() != "*0" {}
        let held = proxy.when(Request::command("SUBSCRIBE")).hold_reply();
        client.send("SUBSCRIBE one two");
        until_seen(&held);
        client.assert_silent();
        assert_eq!(server.command::<u64>(&["PUBLISH", "one", "x"]).unwrap(), 1);
        held.release();
        for word in ["subscribe", "one", ":1", "subscribe", "two", ":2", "message", "one", "x"] {
            until(|| client.line().unwrap() == word);
        }
        let lost = proxy.when(Request::command("SUBSCRIBE").with_argument("four")).lose_reply();
        client.send("SUBSCRIBE three four");
        client.assert_cut();
        until_seen(&lost);
    }
}

#[test]
fn a_message_to_a_subscriber_is_a_push_that_can_be_held_and_lost() {
    for resp in ["2", "3"] {
        let (server, proxy) = pair();
        let mut client = Client::connect(proxy.addr());
        client.ask(&format!("HELLO {resp}")).unwrap();
        while client.line().unwrap() != "*0" {}
        client.ask("SUBSCRIBE one").unwrap();
        until(|| client.line().unwrap() == ":1");
        let publish = |text| server.command::<u64>(&["PUBLISH", "one", text]).unwrap();

        let never = proxy.when(Request::command("message")).hold_request();
        let held = proxy.when_pushed(Request::command("message").with_argument("x")).hold();
        assert_eq!(publish("w") + publish("x") + publish("y"), 3);
        until_seen(&held);
        until(|| client.line().unwrap() == "w");
        client.assert_silent();
        held.release();
        for word in ["x", "y"] {
            until(|| client.line().unwrap() == word);
        }
        let lost = proxy.when_pushed(Request::any()).lose();
        publish("z");
        client.assert_cut();
        assert_eq!((lost.times_seen(), never.times_seen(), proxy.count("message")), (1, 0, 0));
    }
}
