//! What passes, and what the proxy tells of it.

use std::io::Write;
use std::net::Shutdown;

use bytes::Bytes;
use lock_testkit::RedisServer;
use lock_testkit::fault::{Message, Proxy, Request};

use crate::ground::{Client, LIMIT, pair, stored};

#[test]
fn it_passes_what_it_is_given_and_counts_it() {
    let (server, proxy) = pair();
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.ask("SET a 1").unwrap(), "+OK");
    for n in 2..=1_500 {
        assert_eq!(client.ask("incr a").unwrap(), format!(":{n}"));
    }
    assert_eq!(stored(&server, "a").unwrap(), "1500");
    assert_eq!((proxy.count("INCR"), proxy.count("set"), proxy.count("GET")), (1_499, 1, 0));
    assert_eq!(proxy.counts().len(), 2);
    assert_eq!((proxy.recent().len(), proxy.recent()[999].clone()), (1_000, vec!["incr".into(), Bytes::from("a")]));
    assert_eq!(proxy.connections(), 1);
}

#[test]
fn a_large_value_passes_whole() {
    let (server, proxy) = pair();
    let value: String = (0..2_000_000).map(|n| char::from(b'a' + u8::try_from(n % 26).unwrap())).collect();
    let mut connection = redis::Client::open(server.url_at(proxy.addr())).unwrap().get_connection().unwrap();
    redis::cmd("SET").arg("a").arg(&value).exec(&mut connection).unwrap();
    assert!(redis::cmd("GET").arg("a").query::<String>(&mut connection).unwrap() == value);
}

#[test]
fn a_client_that_sends_no_more_still_gets_its_replies() {
    let (server, proxy) = pair();
    let mut client = Client::connect(proxy.addr());
    server.stop().unwrap();
    client.send("INCR a");
    client.0.shutdown(Shutdown::Write).unwrap();
    client.assert_silent();
    server.cont().unwrap();
    assert_eq!(client.line().unwrap(), ":1");
    client.assert_cut();
}

#[test]
fn an_opaque_proxy_passes_anything() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start_opaque(server.addr()).unwrap();
    let mut client = Client::connect(proxy.addr());
    client.0.write_all(b"*x\r\n").unwrap();
    assert!(client.line().unwrap().starts_with("-ERR Protocol error"));
    let mut client = Client::connect(proxy.addr());
    proxy.black_hole();
    client.send("INCR a");
    client.assert_silent();
    proxy.heal();
    assert_eq!(client.line().unwrap(), ":1");
}

#[tokio::test]
async fn it_goes_on_while_the_runtime_of_the_test_is_blocked() {
    let (_server, proxy) = pair();
    let held = proxy.when(Request::any()).hold_request();
    let mut client = Client::connect(proxy.addr());
    client.send("INCR a");
    held.seen().await;
    held.release();
    // This blocks the only thread of the runtime.
    assert_eq!(client.line().unwrap(), ":1");
}

#[test]
fn whoever_listens_hears_of_each_fault_behind_the_message_that_it_is_for() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    proxy.listen(move |message| {
        let word = match message {
            Message::Request(words) => format!("-> {}", String::from_utf8_lossy(&words[0])),
            Message::Reply { to, .. } => format!("<- {}", String::from_utf8_lossy(&to[0])),
            Message::Push(_) => "push".into(),
            Message::Fault(what) => (*what).into(),
        };
        tell.send(word).unwrap();
    });
    let heard = |words: &[&str]| {
        for word in words {
            assert_eq!(told.recv_timeout(LIMIT).unwrap(), *word);
        }
    };
    let mut client = Client::connect(proxy.addr());
    let held = proxy.when(Request::command("SET")).hold_request();
    client.send("SET a 1");
    heard(&["-> SET", "holds the request"]);
    held.release();
    assert_eq!(client.line().unwrap(), "+OK");
    heard(&["lets go what it held", "<- SET"]);
    let lost = proxy.when(Request::command("GET")).lose_reply();
    assert!(client.ask("GET a").is_err());
    heard(&["-> GET", "<- GET", "loses what the server says, and cuts the connection"]);
    drop(lost);
    proxy.black_hole();
    proxy.black_hole();
    proxy.heal();
    heard(&["lets nothing pass", "lets everything pass again"]);
}
