//! Compiles the preloaded library, with rustc alone: cargo builds no cdylib for another crate, and this one must have
//! neither a standard library nor a dependency.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=preload");
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"));

    let (system, libc) = (variable("CARGO_CFG_TARGET_OS"), variable("CARGO_CFG_TARGET_ENV"));
    let processor = variable("CARGO_CFG_TARGET_ARCH");
    assert!(
        system == "linux" && libc == "gnu" && ["x86_64", "aarch64"].contains(&processor.as_str()),
        "the clock shim is for Linux with glibc on x86_64 or aarch64, not for {processor}, {system} and `{libc}`"
    );

    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .args(["--crate-type", "cdylib", "--crate-name", "hasp_clock", "--edition", "2024"])
        .args(["--target", &variable("TARGET")])
        // There is nothing to unwind into. Optimised across crates, core leaves no trace of its unwinding behind, which
        // would be a symbol that no library defines; should one stay, `defs` makes it an error here, not at run time.
        .args(["-C", "panic=abort", "-C", "opt-level=2", "-C", "lto=fat", "-C", "link-arg=-Wl,-z,defs"])
        .arg("-o")
        .arg(Path::new(&variable("OUT_DIR")).join("libhasp_clock.so"))
        .arg("preload/clock.rs");
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={linker}"));
    }
    let status = rustc.status().unwrap_or_else(|error| panic!("cannot run {rustc:?}: {error}"));
    assert!(status.success(), "{rustc:?} ended with {status}");
}
