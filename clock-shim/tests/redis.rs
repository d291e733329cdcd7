//! The shim on redis-server, whose keys expire by its wall clock.

#![allow(clippy::unwrap_used, reason = "the functions below are for tests only")]

mod common;

use std::time::Duration;

use common::{DAY, Probe, redis, redis_time};
use lock_clock::{Clock, Clocks};

#[test]
fn a_key_loses_what_the_wall_clock_of_its_server_gains() {
    let clocks = Clocks::start().unwrap();
    let slot = clocks.slot().unwrap();
    let server = redis(&slot);
    server.command::<()>(&["SET", "a", "1", "PX", "300000"]).unwrap();
    let pttl = || server.command::<i64>(&["PTTL", "a"]).unwrap();
    assert!((240_000..=300_000).contains(&pttl()), "{}", pttl());
    slot.step_wall_back(Duration::from_secs(240)).unwrap();
    assert!((480_000..=540_000).contains(&pttl()), "{}", pttl());
    slot.step_wall_forward(Duration::from_secs(2 * 240)).unwrap();
    assert!((1..=60_000).contains(&pttl()), "{}", pttl());
    slot.step_wall_forward(Duration::from_secs(120)).unwrap();
    assert_eq!(pttl(), -2, "the key is gone");
}

#[test]
fn a_common_step_ends_a_lease_for_server_and_client_at_once() {
    let clocks = Clocks::start().unwrap();
    let server = redis(&clocks.slot().unwrap());
    let holder = Probe::start(&clocks.slot().unwrap());
    server.command::<()>(&["SET", "a", "1", "PX", "600000"]).unwrap();
    let granted = holder.read();
    holder.process.stop().unwrap();
    clocks.step(Duration::from_secs(601)).unwrap();
    holder.process.cont().unwrap();
    let resumed = holder.read();
    assert_eq!(server.command::<i64>(&["PTTL", "a"]).unwrap(), -2);
    assert!(resumed.monotonic - granted.monotonic > Duration::from_secs(600));
    assert!(resumed.lab - granted.lab > Duration::from_secs(600));
}

#[test]
fn the_server_is_proved_to_see_its_clock_also_when_it_was_restarted() {
    let clocks = Clocks::start().unwrap();
    let slot = clocks.slot().unwrap();
    let server = redis(&slot);
    slot.step_wall_forward(DAY).unwrap();
    slot.prove(Clock::Wall, || redis_time(&server)).unwrap();
    server.restart().unwrap();
    slot.prove(Clock::Wall, || redis_time(&server)).unwrap();
    let bare = lock_testkit::RedisServer::start().unwrap();
    assert!(slot.prove(Clock::Wall, || redis_time(&bare)).is_err());
}
