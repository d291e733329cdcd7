//! The soak, for some seconds: sound strategies show nothing, and weak ones are found out. What a schedule does on real servers
//! varies, so a weak strategy gets the rounds that it takes; mostly the first or the second finds it.

use std::io::BufReader;
use std::process::Command;

use lock_testkit::history::{Observable, read_jsonl};

fn soak(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lock-bench"));
    let output = command.arg("soak").args(arguments).output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it writes UTF-8");
    (output.status.code().expect("it ends by itself"), text(output.stdout), text(output.stderr))
}

#[track_caller]
fn is_sound(strategy: &str) {
    let (code, stdout, stderr) = soak(&["--strategy", strategy, "--seconds", "5", "--seed", "4711"]);
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    assert!(stdout.starts_with(&format!("soak of {strategy} for 5 s, seed 4711\n")), "{stdout}");
    assert!(stdout.contains(&format!("as documented: {strategy} is sound under these faults")), "{stdout}");
    assert!(!stdout.contains(" 0 grants"), "a round without a grant shows nothing: {stdout}");
}

#[test]
fn a_token_on_one_redis_shows_nothing() {
    is_sound("redis-token");
}

#[test]
fn redlock_shows_nothing() {
    is_sound("redlock-fenced");
}

#[test]
fn a_blind_delete_is_found_out_and_told_step_by_step() {
    let (code, stdout, stderr) = soak(&["--strategy", "naive-blind-delete", "--seconds", "120", "--seed", "101"]);
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    let found = stdout.lines().find(|line| line.starts_with("found: ")).expect("it says what was found");
    assert!(found.contains("InLeaseOverlap") || found.contains("Stolen"), "{found}");
    let times: Vec<f64> =
        stdout.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(" s  ")?.0.trim().parse().ok()).collect();
    assert!(times.len() > 3 && times.is_sorted(), "the steps have times: {stdout}");
    assert!(stdout.contains("as documented of naive-blind-delete: a late release deletes"), "{stdout}");
    assert!(!stdout.contains("shrinking"), "what is documented is not shrunk unasked: {stdout}");
}

#[test]
fn a_stamp_is_found_out_shrunk_within_bounds_and_its_history_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    let history = ["--history", file.to_str().unwrap()];
    let run = ["--strategy", "naive-getset", "--seconds", "120", "--seed", "101", "--replays", "2"];
    let (code, stdout, stderr) = soak(&[&run[..], &history].concat());
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    let replays = stdout.lines().filter(|line| line.starts_with("shrinking, replay ")).count();
    assert!((1..=2).contains(&replays), "{stdout}");

    let found = stdout.lines().find_map(|line| line.strip_prefix("found: ")).expect("it says what was found");
    let events = read_jsonl(BufReader::new(std::fs::File::open(&file).unwrap())).unwrap();
    for observable in [Observable::InLeaseOverlap, Observable::Stolen, Observable::DishonestOutcome] {
        let is_seen = !observable.find(&events).is_empty();
        assert_eq!(is_seen, found.contains(&observable.to_string()), "{observable} in {found}");
    }
}

#[test]
fn a_wrong_command_line_is_64_and_says_what_there_is() {
    let (code, _, stderr) = soak(&["--strategy", "redis-tokn"]);
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("there is no strategy `redis-tokn`; there are memory,"), "{stderr}");

    let (code, _, stderr) = soak(&["--strategy", "memory"]);
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("memory cannot be soaked: its holders are one process with its store"), "{stderr}");

    let (code, _, stderr) = soak(&["--seconds", "1"]);
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("--strategy"), "{stderr}");
}
