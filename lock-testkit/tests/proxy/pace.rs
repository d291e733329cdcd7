//! Small segments and delays.

use std::io::Read;
use std::thread;
use std::time::Duration;

use lock_core::Moment;
use lock_testkit::fault::{Direction, Segments};

use crate::ground::{Client, pair};

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
