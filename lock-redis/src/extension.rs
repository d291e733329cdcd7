//! What a strategy of another crate needs to keep its locks over a [`Connection`]: scripts of its own, a plain SET, and a listing.

use lock_core::Result;
use redis::{Cmd, FromRedisValue, Value};

use crate::connection::Connection;
use crate::error::explain;
use crate::keys;
use crate::lease::Ttl;
use crate::listing;
use crate::script::{Call, Script};

impl Connection {
    /// Sets a key that does not exist (`SET key value NX PX ttl`), in the connection's limit per request; false if it exists.
    /// `operation` is what an error says was tried, such as `acquire`.
    ///
    /// # Errors
    ///
    /// `Unavailable`, `Rejected` or `Backend`, with the effect of the request.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a dropped request may still land, and nobody learns of it.
    pub async fn set_if_absent(&self, operation: &'static str, key: &str, value: &str, ttl: &Ttl) -> Result<bool> {
        let mut set = Cmd::with_capacity(6, key.len() + value.len() + 32);
        set.arg("SET").arg(key).arg(value).arg("NX").arg("PX").arg(&ttl.millis);
        match self.command(&set).await {
            Ok(Value::Okay) => Ok(true),
            Ok(_nil) => Ok(false),
            Err(failure) => Err(explain(&failure, "redis", operation)),
        }
    }

    /// Runs a script of yours once, in the connection's limit per request: by its digest, and by its text if the server has
    /// forgotten it. `operation` is what an error says was tried.
    ///
    /// # Errors
    ///
    /// `Unavailable`, `Rejected` or `Backend`, with the effect of the request. An error reply counts as no effect, so a
    /// script must check before it writes.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a dropped request may still land, and nobody learns of it.
    pub async fn run_script<T>(&self, operation: &'static str, script: &Script, call: &Call<'_>) -> Result<T>
    where
        T: FromRedisValue + Send,
    {
        self.run(script, call).await.map_err(|failure| explain(&failure, "redis", operation))
    }

    /// Runs a script once for each call, in as few round trips as is wise. The answers are in the order of the calls.
    ///
    /// # Errors
    ///
    /// Each answer has its own; as for [`run_script`](Connection::run_script).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a dropped request may still land, and nobody learns of it.
    pub async fn run_script_for_each(
        &self,
        operation: &'static str,
        script: &Script,
        calls: &[Call<'_>],
    ) -> Vec<Result<i64>> {
        let answers = self.run_all(script, calls).await.into_iter();
        answers.map(|answer| answer.map_err(|failure| explain(&failure, "redis", operation))).collect()
    }

    /// The keys of type string that begin with `prefix`, byte for byte, in order.
    ///
    /// # Errors
    ///
    /// As for [`run_script`](Connection::run_script); no effect.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub async fn strings_beginning_with(&self, prefix: &str) -> Result<Vec<String>> {
        let found = listing::scan(self, &keys::beginning_with(prefix), "string").await;
        found.map(|keys| keys.into_iter().collect()).map_err(|failure| explain(&failure, "redis", "list"))
    }
}
