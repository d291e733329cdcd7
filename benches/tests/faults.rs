//! The fault lab as a whole: everything breaks and holds as documented. It has a file of its own, as those beside it, because
//! cargo runs the files one after another, and a machine that plays two runs at once is too slow for short leases.

use std::fs;
use std::process::Command;

fn lock_bench(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lock-bench")).args(arguments).output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it writes UTF-8");
    (output.status.code().expect("it ends by itself"), text(output.stdout), text(output.stderr))
}

#[test]
fn every_scenario_does_to_every_strategy_what_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let page = folder.path().join("safety.md");
    let ours = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/safety.md")).unwrap();
    fs::write(&page, &ours).unwrap();
    let [file, page] = [&file, &page].map(|path| path.to_str().unwrap());
    let (code, stdout, stderr) = lock_bench(&["compare", "--faults", "--json", file, "--docs", page]);
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    println!("{stdout}");

    let renewed = fs::read_to_string(page).unwrap();
    assert!(renewed == ours, "the tables of docs/safety.md are stale: ./x compare --faults --docs docs/safety.md");
}
