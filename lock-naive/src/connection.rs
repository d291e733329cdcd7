use std::collections::HashSet;
use std::time::Duration;

use lock_core::{Claim, Effect, Inspection, LockKey, Release, Result};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, FromRedisValue, RedisResult, cmd};

use crate::Config;
use crate::error::{foreign, from_redis, unanswered};

/// One connection to one Redis, and what the three strategies have in common on it: names, limits, errors.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    manager: ConnectionManager,
    strategy: &'static str,
    config: Config,
}

impl Connection {
    pub(crate) async fn open(url: &str, strategy: &'static str) -> Result<Self> {
        let limit = Config::new().request_limit;
        let client = Client::open(url).map_err(|error| from_redis(error, strategy, "connect"))?;
        // Our own limit covers each request from its start, connecting included, so the client needs none. And it must not
        // try again by itself: that is the driver's business.
        let settings = ConnectionManagerConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(Some(limit))
            .set_number_of_retries(0);
        let manager = bounded(limit, strategy, "connect", ConnectionManager::new_with_config(client, settings)).await?;
        Ok(Self::from_manager(manager, strategy))
    }

    pub(crate) fn from_manager(manager: ConnectionManager, strategy: &'static str) -> Self {
        Self { manager, strategy, config: Config::new() }
    }

    pub(crate) fn with_config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// The name that a lock has in the store. The strategy is part of it, because no strategy can read another's value.
    pub(crate) fn wire_key(&self, key: &LockKey) -> String {
        format!("{}{key}", self.namespace())
    }

    /// Sends `command` and reads the reply.
    pub(crate) async fn ask<T: FromRedisValue>(
        &self,
        operation: &'static str,
        key: &LockKey,
        command: &Cmd,
    ) -> Result<T> {
        self.send(operation, command).await.map_err(|error| error.with_key(key))
    }

    /// What is written at the key.
    pub(crate) async fn value(&self, operation: &'static str, key: &LockKey) -> Result<Option<Vec<u8>>> {
        let answer = self.ask(operation, key, cmd("GET").arg(self.wire_key(key))).await;
        // Whatever became of the request, it only reads.
        answer.map_err(|error| error.with_effect(Effect::None))
    }

    /// Deletes the key, whatever it holds.
    pub(crate) async fn delete(&self, operation: &'static str, key: &LockKey) -> Result<Release> {
        let deleted: bool = self.ask(operation, key, cmd("DEL").arg(self.wire_key(key))).await?;
        Ok(if deleted { Release::Released } else { Release::NotHeld })
    }

    /// Deletes the key if it holds this claim's value, in two steps: whoever takes the lock in between loses it (S19).
    pub(crate) async fn compare_then_delete(&self, operation: &'static str, claim: &Claim) -> Result<Release> {
        let id = id(claim);
        match self.value(operation, &claim.key).await? {
            Some(value) if value.ends_with(id.as_bytes()) => self.delete(operation, &claim.key).await,
            Some(_) | None => Ok(Release::NotHeld),
        }
    }

    /// Refuses a key that holds something other than a string: to SETNX and SET NX a list looks like a held lock.
    pub(crate) async fn refuse_foreign_type(&self, operation: &'static str, key: &LockKey) -> Result<()> {
        let wire_key = self.wire_key(key);
        let answer: Result<String> = self.ask(operation, key, cmd("TYPE").arg(&wire_key)).await;
        match answer.map_err(|error| error.with_effect(Effect::None))?.as_str() {
            "string" | "none" => Ok(()),
            other => Err(foreign(&wire_key, &format!("a {other}"), self.strategy, operation).with_key(key)),
        }
    }

    /// Looks at a lock whose entry lives as long as the key.
    pub(crate) async fn inspect(&self, key: &LockKey) -> Result<Inspection> {
        let mut found = Inspection::default();
        if let Some(value) = self.value("inspect", key).await? {
            let pttl: i64 = self.ask("inspect", key, cmd("PTTL").arg(self.wire_key(key))).await?;
            // Below zero: the key is gone (-2), or it has no ttl at all (-1).
            found.held = pttl != -2;
            found.holder = found.held.then(|| String::from_utf8_lossy(&value).into_owned());
            found.remaining = u64::try_from(pttl).ok().map(Duration::from_millis);
        }
        Ok(found)
    }

    /// The locks of this strategy whose keys exist and begin with `prefix`.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockKey>> {
        let namespace = self.namespace();
        let pattern = format!("{}*", escape_glob(&format!("{namespace}{prefix}")));
        // SCAN may return a key more than once.
        let mut found = HashSet::new();
        let mut cursor = 0_u64;
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1_000).arg("TYPE").arg("string");
            let (next, page): (u64, Vec<Vec<u8>>) = self.send("list", &scan).await?;
            for wire_key in page {
                // What is not a valid name was not written by us.
                let name = String::from_utf8(wire_key).ok();
                let key = name.as_deref().and_then(|name| name.strip_prefix(&namespace)).map(LockKey::new);
                if let Some(Ok(key)) = key {
                    found.insert(key);
                }
            }
            if next == 0 {
                return Ok(found.into_iter().collect());
            }
            cursor = next;
        }
    }

    fn namespace(&self) -> String {
        format!("{}{}:", self.config.prefix, self.strategy)
    }

    async fn send<T: FromRedisValue>(&self, operation: &'static str, command: &Cmd) -> Result<T> {
        let mut manager = self.manager.clone();
        bounded(self.config.request_limit, self.strategy, operation, command.query_async(&mut manager)).await
    }
}

/// What an entry's value ends with: the claim and not its owner, because one owner may have several claims.
pub(crate) fn id(claim: &Claim) -> String {
    format!("{:032x}", claim.id.bits())
}

async fn bounded<T>(
    limit: Duration,
    strategy: &'static str,
    operation: &'static str,
    request: impl Future<Output = RedisResult<T>> + Send,
) -> Result<T> {
    let Ok(answer) = tokio::time::timeout(limit, request).await else {
        return Err(unanswered(limit, strategy, operation));
    };
    answer.map_err(|error| from_redis(error, strategy, operation))
}

/// `literal` as a pattern that matches nothing else.
fn escape_glob(literal: &str) -> String {
    let mut pattern = String::with_capacity(literal.len());
    for c in literal.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_its_own_text_only() {
        assert_eq!(escape_glob("hasp:a*b?[c]\\d{e}"), "hasp:a\\*b\\?\\[c\\]\\\\d{e}");
    }
}
