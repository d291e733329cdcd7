//! Private ZooKeepers: they start, are killed, stopped, restarted and wiped, and end with their owner.

use std::io;
use std::thread;
use std::time::Duration;

use lock_testkit::ZooKeeperEnsemble;

#[test]
fn a_single_member_serves_and_ends_with_its_owner() {
    let ensemble = ZooKeeperEnsemble::start(1).unwrap();
    assert_eq!((ensemble.size(), ensemble.leader()), (1, Some(0)));
    assert_eq!(ensemble.hosts(), ensemble.addr(0).to_string());
    assert!(ensemble.command(0, "srvr").unwrap().contains("Mode: standalone"));
    let addr = ensemble.addr(0);
    drop(ensemble);
    let refused = std::net::TcpStream::connect(addr).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn three_members_elect_a_leader_again_when_it_is_killed() {
    let ensemble = ZooKeeperEnsemble::start(3).unwrap();
    let first = ensemble.leader().expect("all three serve");
    ensemble.kill(first).unwrap();
    let next = eventually(|| ensemble.leader().filter(|leader| *leader != first));
    assert!(ensemble.command(first, "srvr").is_err());
    ensemble.wipe(first).unwrap();
    ensemble.restart(first).unwrap();
    assert_eq!(ensemble.leader(), Some(next));
    assert!(ensemble.command(first, "srvr").unwrap().contains("Mode: follower"));
}

#[test]
fn a_stopped_member_is_silent_until_it_goes_on() {
    let ensemble = ZooKeeperEnsemble::builder(1).tick(Duration::from_millis(500)).start().unwrap();
    ensemble.stop(0).unwrap();
    // The kernel accepts, and nobody answers.
    std::net::TcpStream::connect(ensemble.addr(0)).unwrap();
    ensemble.cont(0).unwrap();
    assert!(ensemble.command(0, "conf").unwrap().contains("tickTime=500"));
}

#[test]
fn an_isolated_follower_stops_serving_until_it_rejoins() {
    let ensemble = ZooKeeperEnsemble::builder(3).config("syncLimit", "5").links().start().unwrap();
    let leader = ensemble.leader().expect("all three serve");
    let follower = (leader + 1) % 3;
    let serves = |member| ensemble.command(member, "srvr").is_ok_and(|answer| answer.contains("Mode: "));
    ensemble.isolate(follower);
    eventually(|| (!serves(follower)).then_some(()));
    assert!(serves(leader));
    ensemble.rejoin(follower);
    eventually(|| serves(follower).then_some(()));
}

#[test]
fn a_setting_that_zookeeper_refuses_is_an_error_with_its_log() {
    let error = ZooKeeperEnsemble::builder(1).config("tickTime", "soon").start().unwrap_err();
    assert!(error.to_string().contains("soon"), "{error}");
}

fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3_000 {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("not within 30 s");
}

#[test]
fn the_environment_of_a_member_outlives_a_restart() {
    // The virtual machine says in its log that it takes options from this variable.
    let ensemble = ZooKeeperEnsemble::builder(1).env("JAVA_TOOL_OPTIONS", "-Dhasp.colour=green").start().unwrap();
    let told = || ensemble.log(0).unwrap().matches("-Dhasp.colour=green").count();
    assert_eq!(told(), 1);
    ensemble.restart(0).unwrap();
    assert_eq!(told(), 2);
}
