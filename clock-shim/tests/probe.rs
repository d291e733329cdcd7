//! The shim on a program in Rust: what it reads, and how long it waits.

#![allow(clippy::unwrap_used, reason = "the functions below are for tests only")]

mod common;

use std::process::Command;
use std::time::Duration;

use common::{DAY, Probe};
use lock_clock::{Clock, Clocks};

const MINUTE: Duration = Duration::from_secs(60);

/// How exact a step must be seen: the readings before and after are not at the same time.
const ROOM: Duration = Duration::from_secs(30);

fn assert_close(what: &str, is: Duration, should: Duration) {
    assert!(is >= should && is - should < ROOM, "{what} went {is:?}, not {should:?}");
}

#[test]
fn a_common_step_moves_every_clock_of_every_process_alike() {
    let clocks = Clocks::start().unwrap();
    let (one, two) = (Probe::start(&clocks.slot().unwrap()), Probe::start(&clocks.slot().unwrap()));
    let (lab, before) = (clocks.lab_now().unwrap(), [one.read(), two.read()]);
    clocks.step(DAY).unwrap();
    let (after, lab_after) = ([one.read(), two.read()], clocks.lab_now().unwrap());
    assert_close("the lab clock", lab_after - lab, DAY);
    for (before, after) in before.iter().zip(&after) {
        assert_close("REALTIME", after.wall - before.wall, DAY);
        assert_close("MONOTONIC", after.monotonic - before.monotonic, DAY);
        assert_close("BOOTTIME", after.boottime - before.boottime, DAY);
        assert_close("MONOTONIC_RAW", after.lab - before.lab, DAY);
        assert_close("SystemTime", after.system_time - before.system_time, DAY);
        assert_close("Instant", after.since_first - before.since_first, DAY);
        assert!(lab < before.lab && after.lab < lab_after, "the lab clock is one");
    }
}

#[test]
fn an_own_step_moves_one_clock_of_one_process() {
    let clocks = Clocks::start().unwrap();
    let (slot, other_slot) = (clocks.slot().unwrap(), clocks.slot().unwrap());
    let (probe, other) = (Probe::start(&slot), Probe::start(&other_slot));
    let (before, other_before) = (probe.read(), other.read());
    slot.step_wall_forward(3 * DAY).unwrap();
    slot.step_wall_back(DAY).unwrap();
    slot.step_monotonic(3 * DAY).unwrap();
    slot.step_boottime(4 * DAY).unwrap();
    let (after, other_after) = (probe.read(), other.read());
    assert_close("REALTIME", after.wall - before.wall, 2 * DAY);
    assert_close("MONOTONIC", after.monotonic - before.monotonic, 3 * DAY);
    assert_close("BOOTTIME", after.boottime - before.boottime, 4 * DAY);
    assert_close("MONOTONIC_RAW", after.lab - before.lab, Duration::ZERO);
    assert_close("the other's REALTIME", other_after.wall - other_before.wall, Duration::ZERO);
    assert_close("the other's MONOTONIC", other_after.monotonic - other_before.monotonic, Duration::ZERO);
    assert_close("the other's BOOTTIME", other_after.boottime - other_before.boottime, Duration::ZERO);
    slot.step_wall_back(4 * DAY).unwrap();
    assert_close("REALTIME back", before.wall - probe.read().wall, 2 * DAY - ROOM);
}

#[test]
fn a_suspended_process_does_not_count_the_suspend_by_its_monotonic_clock() {
    let clocks = Clocks::start().unwrap();
    let (slot, other_slot) = (clocks.slot().unwrap(), clocks.slot().unwrap());
    let (probe, other) = (Probe::start(&slot), Probe::start(&other_slot));
    let (before, other_before) = (probe.read(), other.read());
    probe.process.stop().unwrap();
    clocks.suspend(&slot, MINUTE).unwrap();
    probe.process.cont().unwrap();
    let (after, other_after) = (probe.read(), other.read());
    assert_close("MONOTONIC", after.monotonic - before.monotonic, Duration::ZERO);
    assert_close("Instant", after.since_first - before.since_first, Duration::ZERO);
    assert_close("BOOTTIME", after.boottime - before.boottime, MINUTE);
    assert_close("REALTIME", after.wall - before.wall, MINUTE);
    assert_close("MONOTONIC_RAW", after.lab - before.lab, MINUTE);
    assert_close("the other's MONOTONIC", other_after.monotonic - other_before.monotonic, MINUTE);
    assert!(Clocks::start().unwrap().suspend(&slot, MINUTE).is_err(), "the slot belongs to other clocks");
}

#[test]
fn every_wait_until_a_time_lasts_as_long_as_it_was_meant() {
    let clocks = Clocks::start().unwrap();
    let slot = clocks.slot().unwrap();
    let probe = Probe::start(&slot);
    // Each clock is ahead by another length, so that a wait converted by the wrong one lasts for seconds, or not at all.
    slot.step_wall_back(2 * DAY).unwrap();
    slot.step_monotonic(3 * DAY).unwrap();
    slot.step_boottime(DAY).unwrap();
    for wait in [
        "recv_timeout",
        "park_timeout",
        "wait_timeout",
        "sleep",
        "clock_nanosleep",
        "cond_timedwait",
        "cond_timedwait_monotonic",
        "cond_clockwait",
        "cond_clockwait_monotonic",
        "mutex_timedlock",
        "mutex_clocklock",
        "rwlock_timedrdlock",
        "rwlock_timedwrlock",
        "sem_timedwait",
        "sem_clockwait",
        "timerfd",
        "timerfd_monotonic",
        "timerfd_boottime",
        "futex",
        "futex_monotonic",
    ] {
        let lasted = probe.wait(wait);
        assert!(lasted >= Duration::from_millis(190) && lasted < ROOM, "{wait} lasted {lasted:?}, not 200 ms");
    }
}

#[test]
fn a_process_is_proved_to_see_its_clocks_or_not() {
    let clocks = Clocks::start().unwrap();
    let (slot, other) = (clocks.slot().unwrap(), clocks.slot().unwrap());
    let (shimmed, bare) = (Probe::start(&slot), Probe::start_bare());
    slot.step_wall_back(DAY).unwrap();
    for (clock, read) in [
        (Clock::Wall, (|probe| probe.read().wall) as fn(&Probe) -> Duration),
        (Clock::Monotonic, |probe| probe.read().monotonic),
        (Clock::Boottime, |probe| probe.read().boottime),
        (Clock::Lab, |probe| probe.read().lab),
    ] {
        slot.prove(clock, || Ok(read(&shimmed))).unwrap();
        let error = slot.prove(clock, || Ok(read(&bare))).unwrap_err();
        assert!(error.to_string().contains("the clock shim does not reach the process in slot 0"), "{error}");
    }
    assert!(other.prove(Clock::Wall, || Ok(shimmed.read().wall)).is_err(), "this is another slot");
}

#[test]
fn a_process_that_finds_no_offsets_ends_with_a_sentence() {
    let clocks = Clocks::start().unwrap();
    let slot = clocks.slot().unwrap();
    for (variable, value, says) in [
        ("HASP_CLOCK_FILE", "/nowhere/clocks", "the file HASP_CLOCK_FILE cannot be opened"),
        ("HASP_CLOCK_FILE", env!("CARGO_BIN_EXE_clock-probe"), "the file HASP_CLOCK_FILE is no table of clocks"),
        ("HASP_CLOCK_SLOT", "16383", "HASP_CLOCK_SLOT names no slot"),
        ("HASP_CLOCK_SLOT", "-1", "HASP_CLOCK_SLOT names no slot"),
    ] {
        let output = Command::new("date").envs(slot.env()).env(variable, value).output().unwrap();
        assert_eq!(output.status.code(), Some(127), "{variable}={value}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("hasp clock shim: {says}\n"));
    }
}

#[test]
fn a_process_without_the_variables_keeps_the_real_clocks() {
    let clocks = Clocks::start().unwrap();
    let slot = clocks.slot().unwrap();
    let year = |command: &mut Command| String::from_utf8(command.arg("+%Y").output().unwrap().stdout).unwrap();
    slot.step_wall_forward(10 * 366 * DAY).unwrap();
    let real = year(&mut Command::new("date"));
    assert_ne!(year(Command::new("date").envs(slot.env())), real);
    assert_eq!(year(Command::new("date").envs(slot.env()).env_remove("HASP_CLOCK_SLOT")), real);
}
