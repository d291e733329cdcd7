//! What is going on, on standard error: one line that is written over on a terminal, a line for each step elsewhere.

use std::fmt;
use std::io::{IsTerminal, Write, stderr};

/// Says what is being done. Dropping it wipes the line.
#[derive(Debug)]
pub struct Progress {
    kind: Kind,
    total: usize,
    done: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Terminal,
    Lines,
    Silent,
}

impl Progress {
    /// Progress on standard error.
    #[must_use]
    pub fn on_stderr() -> Self {
        Self { kind: if stderr().is_terminal() { Kind::Terminal } else { Kind::Lines }, total: 0, done: 0 }
    }

    /// Progress that nobody sees.
    #[must_use]
    pub const fn silent() -> Self {
        Self { kind: Kind::Silent, total: 0, done: 0 }
    }

    /// Says how many steps there will be.
    pub(crate) fn expect(&mut self, steps: usize) {
        self.total += steps;
    }

    /// Begins the next step.
    pub(crate) fn step(&mut self, what: impl fmt::Display) {
        // A line that wraps could not be written over.
        const WIDTH: usize = 78;

        self.done += 1;
        let line = format!("[{}/{}] {what}", self.done, self.total);
        // Whoever has closed standard error does not want to know.
        let _ = match self.kind {
            Kind::Terminal => {
                let shown: String = line.chars().take(WIDTH).collect();
                write!(stderr(), "\r\x1b[2K{shown}").and_then(|()| stderr().flush())
            }
            Kind::Lines => writeln!(stderr(), "{line}"),
            Kind::Silent => Ok(()),
        };
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.kind == Kind::Terminal {
            let _ = write!(stderr(), "\r\x1b[2K");
        }
    }
}
