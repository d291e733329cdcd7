//! Everything at once: black holes, connections that are cut or refused, and a server or a proxy that is away.

use std::io;
use std::net::TcpStream;

use lock_testkit::fault::Request;

use crate::ground::{Client, pair, stored, until_seen};

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
