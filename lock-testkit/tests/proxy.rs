//! Every fault of the proxy, in front of a real Redis.

#![allow(clippy::unwrap_used, reason = "the functions below are for tests only")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use lock_core::Moment;
use lock_testkit::RedisServer;
use lock_testkit::fault::{Armed, Direction, Message, Proxy, Request, Segments};

/// Long enough for anything to arrive that is not held.
const A_WHILE: Duration = Duration::from_millis(100);

/// The longest that anything may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A client that shows each byte.
struct Client(TcpStream);

impl Client {
    fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    fn send(&mut self, command: &str) {
        let words: Vec<_> = command.split(' ').collect();
        let packed = redis::Cmd::new().arg(words).get_packed_command();
        self.0.write_all(&packed).unwrap();
    }

    /// The next line, without its end.
    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            line.push(byte[0]);
        }
        Ok(String::from_utf8(line).unwrap().trim_end().to_owned())
    }

    fn ask(&mut self, command: &str) -> io::Result<String> {
        self.send(command);
        self.line()
    }

    #[track_caller]
    fn assert_silent(&mut self) {
        self.0.set_read_timeout(Some(A_WHILE)).unwrap();
        let read = self.0.read(&mut [0]);
        assert!(read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock), "{read:?}");
        self.0.set_read_timeout(Some(LIMIT)).unwrap();
    }

    #[track_caller]
    fn assert_cut(&mut self) {
        let end = self.line().unwrap_err();
        assert!(matches!(end.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset), "{end}");
    }
}

fn pair() -> (RedisServer, Proxy) {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    (server, proxy)
}

fn stored(server: &RedisServer, key: &str) -> Option<String> {
    server.command(&["GET", key]).unwrap()
}

#[track_caller]
fn until(mut holds: impl FnMut() -> bool) {
    let limit = Moment::now().saturating_add(LIMIT);
    while !holds() {
        assert!(!limit.remaining().is_zero(), "not within 20 s");
        thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
fn until_seen(armed: &Armed) {
    until(|| armed.times_seen() > 0);
}

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

#[test]
fn a_black_hole_lets_nothing_pass_until_it_heals() {
    let (server, proxy) = pair();
    let (mut client, mut gone) = (Client::connect(proxy.addr()), Client::connect(proxy.addr()));
    assert_eq!(client.ask("INCR a").unwrap() + &gone.ask("INCR a").unwrap(), ":1:2");
    proxy.black_hole();
    client.send("INCR a");
    let mut new = Client::connect(proxy.addr());
    new.send("INCR b");
    drop(gone);
    client.assert_silent();
    new.assert_silent();
    assert_eq!((stored(&server, "a").unwrap(), stored(&server, "b")), ("2".into(), None));
    let clients: String = server.command(&["CLIENT", "LIST"]).unwrap();
    assert_eq!(clients.matches(" addr=127.0.0.1").count(), 2, "the server is not told that one has gone: {clients}");
    proxy.heal();
    assert_eq!((client.line().unwrap(), new.line().unwrap()), (":3".into(), ":1".into()));
}

#[test]
fn connections_can_be_cut_and_refused() {
    let (_server, proxy) = pair();
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.ask("INCR a").unwrap(), ":1");
    proxy.refuse_connections();
    assert_eq!(TcpStream::connect(proxy.addr()).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(client.ask("INCR a").unwrap(), ":2", "those that exist go on");
    proxy.cut_connections();
    client.assert_cut();
    proxy.accept_connections().unwrap();
    proxy.accept_connections().unwrap();
    assert_eq!(Client::connect(proxy.addr()).ask("INCR a").unwrap(), ":3");
}

#[test]
fn a_server_that_is_away_is_a_closed_connection_and_comes_back() {
    let (server, proxy) = pair();
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.ask("INCR a").unwrap(), ":1");
    server.kill().unwrap();
    client.assert_cut();
    Client::connect(proxy.addr()).assert_cut();
    server.restart().unwrap();
    assert_eq!(Client::connect(proxy.addr()).ask("INCR a").unwrap(), ":1");
}

#[test]
fn segments_are_small_and_lose_nothing() {
    let (_server, proxy) = pair();
    let mut client = Client::connect(proxy.addr());
    proxy.set_segments(Direction::ToClient, Some(Segments::of(7).with_pause(Duration::from_millis(1))));
    let text = "abcdefghijklmnopqrstuvwxyz".repeat(20);
    client.send(&format!("ECHO {text}"));
    let (mut received, mut reads) = (Vec::new(), 0);
    while received.len() < text.len() + "$520\r\n\r\n".len() {
        let mut chunk = [0; 4_096];
        let length = client.0.read(&mut chunk).unwrap();
        received.extend_from_slice(&chunk[..length]);
        reads += 1;
    }
    assert_eq!(received, format!("$520\r\n{text}\r\n").as_bytes());
    assert!(reads > 10, "528 bytes came in {reads} reads");

    proxy.set_segments(Direction::ToServer, Some(Segments::of(1)));
    proxy.set_segments(Direction::ToClient, None);
    assert_eq!(client.ask("SET a 1").unwrap(), "+OK");
}

#[test]
fn a_delay_makes_a_connection_late_and_no_narrower() {
    const DELAY: Duration = Duration::from_millis(150);
    let (_server, proxy) = pair();
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.ask("INCR a").unwrap(), ":1");
    for (directions, least) in
        [(&[Direction::ToServer][..], DELAY), (&[Direction::ToServer, Direction::ToClient], 2 * DELAY)]
    {
        for direction in directions {
            proxy.set_delay(*direction, DELAY);
        }
        let sent = Moment::now();
        client.ask("INCR a").unwrap();
        assert!(Moment::now().saturating_duration_since(sent) >= least);
    }
    // One after the other, fifty delayed requests would take 15 s.
    let sent = Moment::now();
    for _ in 0..50 {
        client.send("INCR a");
        thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..50 {
        client.line().unwrap();
    }
    assert!(Moment::now().saturating_duration_since(sent) < Duration::from_secs(5));
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.set_delay(direction, Duration::ZERO);
    }
    let sent = Moment::now();
    for _ in 0..10 {
        client.ask("INCR a").unwrap();
    }
    assert!(Moment::now().saturating_duration_since(sent) < 10 * DELAY);
}

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

#[test]
fn a_dropped_proxy_closes_everything() {
    let (_server, proxy) = pair();
    let addr = proxy.addr();
    let held = proxy.when(Request::any()).hold_request();
    let mut client = Client::connect(addr);
    client.send("INCR a");
    until_seen(&held);
    drop(proxy);
    client.assert_cut();
    assert_eq!(TcpStream::connect(addr).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
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
