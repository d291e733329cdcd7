//! See `lock-bench --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    lock_bench::run()
}
