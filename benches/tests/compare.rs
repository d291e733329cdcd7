//! The comparison as a whole, on real servers: what it says, and how it ends.

use std::process::Command;

use lock_bench::{Agenda, Strategy};

fn lock_bench(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lock-bench")).args(arguments).output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it writes UTF-8");
    (output.status.code().expect("it ends by itself"), text(output.stdout), text(output.stderr))
}

#[test]
fn a_comparison_shows_a_table_writes_a_report_and_ends_well() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("made/for/it/report.json");
    let (code, stdout, stderr) = lock_bench(&["compare", "--quick", "--json", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{stdout}\n{stderr}");

    let (last, name) = (stdout.lines().last().unwrap(), file.to_str().unwrap());
    assert_eq!(last, format!("The report lies in {name}"));
    assert!(!stdout.contains("UNEXPECTED") && !stdout.contains('\x1b'), "{stdout}");
    assert!(stderr.lines().count() > 40, "progress is a line for each step where there is no terminal:\n{stderr}");

    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["as_documented"], true);
    let strategies = report["strategies"].as_array().unwrap();
    assert_eq!(strategies.len(), Strategy::all().len());
    for strategy in strategies {
        let name = strategy["strategy"].as_str().unwrap();
        assert!(stdout.matches(name).count() >= 2, "{name} is in both tables:\n{stdout}");
        assert!(strategy["speed"]["uncontended"]["p50_us"].as_f64().unwrap() > 0.0, "{strategy}");
        assert_eq!(strategy["contended"]["lost_updates"], 0, "{strategy}");
        let faults = strategy["faults"].as_array().unwrap();
        let ids: Vec<_> = faults.iter().map(|fault| fault["scenario"].as_str().unwrap()).collect();
        assert_eq!(ids, Agenda::TELLING);
        for fault in faults {
            assert_eq!(fault["expected"], fault["observed"], "{fault}");
            assert!(!fault["because"].as_str().unwrap().is_empty(), "{fault}");
            let shown = !fault["seen"].as_array().unwrap().is_empty();
            assert!(shown || fault["observed"] != "breaks", "what breaks is shown: {fault}");
        }
    }
}

#[test]
fn a_benchmark_writes_a_line_for_each_result_and_the_ratios_to_its_floors() {
    let (code, stdout, stderr) = lock_bench(&["bench", "--quick", "--seconds", "1", "--strategy", "redis-token"]);
    assert_eq!(code, 0, "{stderr}");
    let lines: Vec<serde_json::Value> =
        stdout.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect();
    for workload in ["uncontended", "throughput", "handover", "herd"] {
        let line = lines.iter().find(|line| line["peer"] == "hasp-Token" && line["workload"] == workload).unwrap();
        assert!(line["ops"].as_u64().unwrap() > 0, "{line}");
        for figure in ["p50_us", "p95_us", "p99_us", "ops_per_s"] {
            assert!(line[figure].as_f64().unwrap() > 0.0, "{line}");
        }
    }
    for floor in ["raw-set-nx", "raw-token-scripts"] {
        assert!(lines.iter().any(|line| line["peer"] == floor), "{stdout}");
    }
    for limit in ["at most 1.15", "at least 0.80", "at least 0.45"] {
        assert!(stdout.contains(limit), "{stdout}");
    }
}

#[test]
fn a_wrong_command_line_is_64_and_says_what_there_is() {
    let (code, _, stderr) = lock_bench(&["compare", "--strategy", "memory,redis-tokn"]);
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("there is no strategy `redis-tokn`; there are memory,"), "{stderr}");

    let (code, _, stderr) = lock_bench(&["compare", "--faults", "S07,S99"]);
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("there is no scenario `S99`; there are ") && stderr.contains("S07+f"), "{stderr}");

    let (code, stdout, _) = lock_bench(&["--help"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("Exit codes:"), "{stdout}");
}

#[test]
fn a_missing_server_is_64_and_says_what_to_do() {
    for (variable, strategy) in [("HASP_REDIS_SERVER", "redis-token"), ("HASP_ETCD", "etcd")] {
        let output = Command::new(env!("CARGO_BIN_EXE_lock-bench"))
            .args(["compare", "--faults", "C1", "--json", "/dev/null", "--strategy", strategy])
            .env(variable, "/nowhere/at-all")
            .output()
            .expect("it starts");
        let stderr = String::from_utf8(output.stderr).expect("it writes UTF-8");
        assert_eq!(output.status.code(), Some(64), "{stderr}");
        assert!(stderr.contains("/nowhere/at-all") && stderr.contains(variable), "{stderr}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    let (code, stdout, stderr) =
        lock_bench(&["compare", "--faults", "S07", "--strategy", "memory", "--json", "/proc/none/report.json"]);
    assert_eq!(code, 69, "{stdout}");
    assert!(stderr.contains("the report cannot be written to /proc/none/report.json"), "{stderr}");
}

#[test]
fn the_list_tells_every_fault_step_by_step() {
    let (code, stdout, _) = lock_bench(&["list"]);
    assert_eq!(code, 0);
    for strategy in Strategy::all() {
        assert!(stdout.contains(strategy.name()), "{stdout}");
    }
    for step in ["S07: ", "S19: ", "    1. "] {
        assert!(stdout.contains(step), "{stdout}");
    }
}

/// A time line for a class: it fits a screen, and shows what somebody asks, what goes wrong, and how it ends.
#[test]
fn a_told_fault_fits_a_screen_and_shows_what_goes_wrong_where_it_does() {
    for (id, strategy, in_order) in [
        (
            "S07",
            "redis-token",
            &["HOLDS the lock", "lab   a is stopped", "HOLDS the lock", "lab   a goes on", "WRITES"][..],
        ),
        ("S36", "redlock", &["-> SET hasp:LOCK", "<- OK (SET)", "server 1 is started anew", "HOLDS the lock"]),
        ("S06", "redis-token", &["-- the network holds", "-- the network lets go", "HOLDS the lock for"]),
        ("S40", "redis-reentrant", &["HOLDS the lock", "the server is told FLUSHALL"]),
        ("S56", "etcd", &["the conditions hold", "an administrator revokes the lease of a", "WRITES"]),
        ("S52", "zookeeper", &["error: NoNode (create2)", "a is killed", "push: notification"]),
    ] {
        let (code, stdout, stderr) = lock_bench(&["compare", "--tell", id, "--strategy", strategy]);
        assert_eq!(code, 0, "{stdout}\n{stderr}");
        assert!(stdout.lines().count() <= 40, "{stdout}");
        assert!(stdout.contains("\n  1. A ") && stdout.contains(", as documented: "), "{stdout}");
        let mut rest = &*stdout;
        for part in in_order {
            let at = rest.find(part).unwrap_or_else(|| panic!("no `{part}` where it should be:\n{stdout}"));
            rest = &rest[at + part.len()..];
        }
    }
}
