//! The shim on ZooKeeper, which is a Java virtual machine: its sessions expire by the monotonic clock, and its threads wait
//! until times of that clock.

#![allow(clippy::unwrap_used, reason = "the functions below are for tests only")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use common::{DAY, until};
use lock_clock::{Clocks, Slot};
use lock_testkit::{ZooKeeperEnsemble, ZooKeeperEnsembleBuilder};

const HOUR: Duration = Duration::from_secs(3600);

/// The longest session that the server of these tests grants.
const LONG: Duration = Duration::from_secs(600);

fn zookeeper(slot: &Slot) -> ZooKeeperEnsemble {
    let longest = LONG.as_millis().to_string();
    let builder = ZooKeeperEnsemble::builder(1).tick(Duration::from_millis(200)).config("maxSessionTimeout", &longest);
    let in_slot = |builder: ZooKeeperEnsembleBuilder, (name, value)| builder.env(name, value);
    slot.env().into_iter().fold(builder, in_slot).start().unwrap()
}

/// Opens a session, and leaves it alone.
fn session(ensemble: &ZooKeeperEnsemble, timeout: Duration) -> i64 {
    let mut request = Vec::new();
    request.extend(44_i32.to_be_bytes()); // the length of what follows
    request.extend(0_i32.to_be_bytes()); // protocol
    request.extend(0_i64.to_be_bytes()); // last transaction seen
    request.extend(i32::try_from(timeout.as_millis()).unwrap().to_be_bytes());
    request.extend(0_i64.to_be_bytes()); // a new session
    request.extend(16_i32.to_be_bytes()); // the length of its password
    request.extend([0; 16]);
    let mut stream = TcpStream::connect(ensemble.addr(0)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(&request).unwrap();
    let mut answer = [0; 20];
    stream.read_exact(&mut answer).unwrap();
    i64::from_be_bytes(answer[12..].try_into().unwrap())
}

fn is_live(ensemble: &ZooKeeperEnsemble, session: i64) -> bool {
    ensemble.command(0, "dump").unwrap().contains(&format!("{session:#x}"))
}

/// Waits until the server has looked at its clock: until a session of two ticks has expired.
fn await_tick(ensemble: &ZooKeeperEnsemble) {
    let short = session(ensemble, Duration::from_millis(400));
    until("a short session has expired", || !is_live(ensemble, short));
}

#[test]
fn a_session_ends_in_time_although_the_clocks_are_ahead() {
    let clocks = Clocks::start().unwrap();
    let slot = clocks.slot().unwrap();
    slot.step_monotonic(DAY).unwrap();
    let ensemble = zookeeper(&slot);
    // The server's threads wait for ticks. Were these waits not converted, they would last a day.
    await_tick(&ensemble);
}

#[test]
fn a_session_ends_by_the_monotonic_clock_and_not_by_the_wall_clock() {
    let clocks = Clocks::start().unwrap();
    let slot = clocks.slot().unwrap();
    let ensemble = zookeeper(&slot);
    // Once more, because a JVM whose waits are not converted notices the first step only.
    for _ in 0..2 {
        let long = session(&ensemble, LONG);
        slot.step_wall_forward(HOUR).unwrap();
        await_tick(&ensemble);
        assert!(is_live(&ensemble, long));
        slot.step_wall_back(3 * HOUR).unwrap();
        await_tick(&ensemble);
        assert!(is_live(&ensemble, long));
        slot.step_monotonic(HOUR).unwrap();
        until("the session has expired", || !is_live(&ensemble, long));
    }
}
