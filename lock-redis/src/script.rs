use std::sync::LazyLock;

use redis::Cmd;

/// A Lua script and its digest.
#[derive(Debug)]
pub struct Script {
    source: &'static str,
    digest: String,
}

impl Script {
    /// The script with this text.
    #[must_use]
    pub fn new(source: &'static str) -> Self {
        Self { source, digest: redis::Script::new(source).get_hash().to_owned() }
    }

    /// Runs the script by its digest.
    pub(crate) fn evalsha(&self, call: &Call<'_>) -> Cmd {
        call.command("EVALSHA", &self.digest)
    }

    /// Runs the script by its text, for a server that has forgotten it; it knows it afterwards.
    pub(crate) fn eval(&self, call: &Call<'_>) -> Cmd {
        call.command("EVAL", self.source)
    }

    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.source);
        command
    }
}

/// What one run of a [`Script`] is given.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a script has keys and arguments and nothing else")]
pub struct Call<'a> {
    /// Its KEYS.
    pub keys: &'a [&'a str],
    /// Its ARGV.
    pub args: &'a [&'a str],
}

impl Call<'_> {
    fn command(&self, name: &str, script: &str) -> Cmd {
        let bytes = self.keys.iter().chain(self.args).map(|arg| arg.len()).sum::<usize>();
        let mut command = Cmd::with_capacity(3 + self.keys.len() + self.args.len(), bytes + script.len() + 16);
        command.arg(name).arg(script).arg(self.keys.len()).arg(self.keys).arg(self.args);
        command
    }
}

pub(crate) static TOKEN_ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("token/acquire.lua")));
pub(crate) static TOKEN_RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("token/renew.lua")));
pub(crate) static TOKEN_RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("token/release.lua")));
pub(crate) static REENTRANT_ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("reentrant/acquire.lua")));
pub(crate) static REENTRANT_RENEW: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("reentrant/renew.lua")));
pub(crate) static REENTRANT_RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("reentrant/release.lua")));
pub(crate) static FORCE_RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("force_release.lua")));
