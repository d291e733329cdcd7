//! The private Redis, on the real program.

#![allow(clippy::unwrap_used, reason = "the functions below are for tests only")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use lock_core::Moment;
use lock_testkit::RedisServer;

/// Looks again every few milliseconds, for 20 s at most.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Moment::now().saturating_add(Duration::from_secs(20));
    while !holds() {
        assert!(!limit.remaining().is_zero(), "{what}: not within 20 s");
        thread::sleep(Duration::from_millis(5));
    }
}

fn is_alive(pid: u32) -> bool {
    // A zombie has no command line.
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

fn client(server: &RedisServer) -> redis::Connection {
    redis::Client::open(server.url()).unwrap().get_connection().unwrap()
}

#[test]
fn it_serves_on_its_port_and_its_socket() {
    let server = RedisServer::builder().config("maxmemory-policy", "noeviction").password("a:b@c/%").start().unwrap();
    for url in [server.url(), server.unix_url()] {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let policy: Vec<String> =
            redis::cmd("CONFIG").arg("GET").arg("maxmemory-policy").query(&mut connection).unwrap();
        assert_eq!(policy, ["maxmemory-policy", "noeviction"]);
    }
    let error =
        redis::Client::open(format!("redis://:wrong@{}", server.addr())).unwrap().get_connection().err().unwrap();
    assert_eq!(error.kind(), redis::ErrorKind::AuthenticationFailed, "{error}");
    assert!(!format!("{server:?}").contains("a:b@c"));
}

#[tokio::test]
async fn it_serves_from_async_code_too() {
    let server = RedisServer::start().unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let pong: String = redis::cmd("PING").query_async(&mut connection).await.unwrap();
    assert_eq!(pong, "PONG");
}

#[test]
fn many_start_at_once_each_on_its_own() {
    let servers: Vec<_> = thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| RedisServer::start().unwrap())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    for (number, server) in servers.iter().enumerate() {
        server.command::<()>(&["SET", "number", &number.to_string()]).unwrap();
    }
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(redis::cmd("GET").arg("number").query::<usize>(&mut client(server)).unwrap(), number);
    }
}

#[test]
fn a_dropped_server_leaves_no_process_no_zombie_and_no_folder() {
    let server = RedisServer::start().unwrap();
    let (pid, folder) = (server.pid(), server.unix_socket().parent().unwrap().to_owned());
    assert!(is_alive(pid) && folder.exists());
    drop(server);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(!folder.exists());
}

/// The test runs itself: once more, as the owner that is killed.
#[test]
fn a_server_dies_with_its_killed_owner() {
    const OWNER: &str = "LOCK_TESTKIT_OWNER";
    if std::env::var_os(OWNER).is_some() {
        let server = thread::spawn(|| RedisServer::start().unwrap()).join().unwrap();
        println!("\nserver {}", server.pid());
        thread::sleep(Duration::from_secs(60));
        return;
    }
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_server_dies_with_its_killed_owner", "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid: u32 = BufReader::new(owner.stdout.take().unwrap())
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("server ").map(|pid| pid.parse().unwrap()))
        .unwrap();
    // The thread that started it has ended long ago, which must not end it.
    assert!(is_alive(pid));
    owner.kill().unwrap();
    owner.wait().unwrap();
    until("the server has gone with its owner", || !is_alive(pid));
}

#[test]
fn a_restart_is_empty_and_on_the_same_port() {
    let server = RedisServer::start().unwrap();
    redis::cmd("SET").arg("a").arg(1).exec(&mut client(&server)).unwrap();
    let (pid, addr) = (server.pid(), server.addr());
    server.kill().unwrap();
    assert!(redis::Client::open(server.url()).unwrap().get_connection().is_err());
    server.restart().unwrap();
    assert!(server.pid() != pid && server.addr() == addr);
    assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut client(&server)).unwrap(), 0);
}

#[test]
fn a_restart_with_an_append_only_file_keeps_the_data() {
    let server = RedisServer::builder().config("appendonly", "yes").start().unwrap();
    redis::cmd("SET").arg("a").arg(7).exec(&mut client(&server)).unwrap();
    server.restart().unwrap();
    assert_eq!(redis::cmd("GET").arg("a").query::<u64>(&mut client(&server)).unwrap(), 7);
}

#[test]
fn a_stopped_server_is_silent_until_it_runs_on() {
    let server = RedisServer::start().unwrap();
    let mut connection = client(&server);
    server.stop().unwrap();
    connection.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(redis::cmd("PING").exec(&mut connection).unwrap_err().is_timeout());
    server.cont().unwrap();
    assert_eq!(server.command::<String>(&["PING"]).unwrap(), "PONG");
    server.stop().unwrap();
    server.restart().unwrap();
    assert_eq!(server.command::<String>(&["PING"]).unwrap(), "PONG");
}

#[test]
fn every_thread_stands_still_when_stop_returns() {
    let server = RedisServer::start().unwrap();
    for _ in 0..100 {
        server.stop().unwrap();
        for task in fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap() {
            let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            assert!(stat.rsplit_once(") ").unwrap().1.starts_with('T'), "{stat}");
        }
        server.cont().unwrap();
    }
}

#[test]
fn only_the_commands_of_others_are_counted() {
    let server = RedisServer::start().unwrap();
    let mut connection = client(&server);
    redis::cmd("PING").exec(&mut connection).unwrap();
    let before = server.commands_processed().unwrap();
    for _ in 0..10 {
        server.command::<()>(&["SET", "a", "1"]).unwrap();
        assert_eq!(server.commands_processed().unwrap(), before);
    }
    redis::cmd("GET").arg("a").exec(&mut connection).unwrap();
    redis::cmd("DEL").arg("a").exec(&mut connection).unwrap();
    assert_eq!(server.commands_processed().unwrap(), before + 2);
}

#[test]
fn a_monitor_shows_what_came_in_order_and_nothing_of_ours() {
    let server = RedisServer::start().unwrap();
    let mut connection = client(&server);
    let monitor = server.monitor().unwrap();
    assert_eq!(monitor.commands().unwrap(), []);

    redis::cmd("set").arg("a b").arg(b"\0\"\\\n\xff").exec(&mut connection).unwrap();
    redis::cmd("EVAL").arg("return redis.call('DEL', KEYS[1])").arg(1).arg("a b").exec(&mut connection).unwrap();
    server.command::<()>(&["GET", "a b"]).unwrap();
    let seen = monitor.commands().unwrap();
    let names: Vec<_> = seen.iter().map(|one| (one.name(), one.is_from_script())).collect();
    assert_eq!(names, [("SET".into(), false), ("EVAL".into(), false), ("DEL".into(), true)]);
    assert_eq!(seen[0].arguments, ["set", "a b", "\0\"\\\n\u{fffd}"]);

    monitor.clear().unwrap();
    assert_eq!(monitor.commands().unwrap(), []);
    server.restart().unwrap();
    let error = monitor.commands().unwrap_err();
    assert!(error.to_string().contains("start another monitor"), "{error}");
}

#[test]
fn the_testkit_gets_in_whatever_happens_to_the_default_user() {
    let server = RedisServer::builder().config("user", "default off").start().unwrap();
    let refused =
        redis::Client::open(server.url()).unwrap().get_connection().and_then(|mut it| redis::cmd("PING").exec(&mut it));
    assert!(refused.unwrap_err().to_string().contains("NOAUTH"));
    server.command::<()>(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    assert_eq!(server.command::<String>(&["PING"]).unwrap(), "PONG");
}

#[test]
fn a_server_that_refuses_its_configuration_tells_why() {
    let error = RedisServer::builder().config("no-such-option", "1").start().unwrap_err();
    assert!(error.to_string().contains("no-such-option"), "{error}");
}

#[test]
fn its_environment_outlives_a_restart() {
    // Redis writes over what /proc tells of its environment, but ld.so(8) says which library it cannot preload.
    let server = RedisServer::builder().env("LD_PRELOAD", "/nowhere/green.so").start().unwrap();
    let told = || server.log().unwrap().matches("'/nowhere/green.so' from LD_PRELOAD cannot be preloaded").count();
    let at_first = told();
    assert!(at_first > 0);
    server.restart().unwrap();
    assert_eq!(told(), 2 * at_first);
}
