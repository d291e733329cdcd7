//! The fault lab is strong enough to see what does not do as documented.

use std::process::Command;

#[test]
fn every_mutant_is_caught() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_lock-bench")).args(["compare", "--mutants"]).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}
