//! What a lock guards: a counter in a real store that other processes can reach, which may check fencing tokens.

use std::time::Duration;

use lock_core::FencingToken;
use lock_testkit::fault::Proxy;
use lock_testkit::history::{Actor, Hold};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script};
use rusqlite::Connection;

use super::protocol::Resource;
use crate::Failure;

/// The row that everybody writes.
const SQLITE_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS guarded (id INTEGER PRIMARY KEY, value INTEGER NOT NULL, fence INTEGER NOT NULL)";
const SQLITE_ROW: &str = "INSERT OR IGNORE INTO guarded VALUES (1, 0, 0)";
const SQLITE_READ: &str = "SELECT value FROM guarded WHERE id = 1";
const SQLITE_WRITE: &str = "UPDATE guarded SET value = ?1 WHERE id = 1";
/// The one statement of `docs/safety.md`: no row changes if a newer holder has written.
const SQLITE_WRITE_FENCED: &str = "UPDATE guarded SET value = ?1, fence = ?2 WHERE id = 1 AND fence <= ?2";

/// The same for a hash of Redis.
const REDIS_WRITE_FENCED: &str = r"
local fence = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[2]) < fence then return 0 end
redis.call('HSET', KEYS[1], 'value', ARGV[1], 'fence', ARGV[2])
return 1
";

/// The same, and it counts what it accepts; a token of 0 is not looked at. Answers the count, or 0 for a refusal.
const REDIS_WRITE_COUNTED: &str = r"
local fence = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) > 0 then
    if tonumber(ARGV[1]) < fence then return 0 end
    redis.call('HSET', KEYS[1], 'fence', ARGV[1])
end
return redis.call('HINCRBY', KEYS[1], 'writes', 1)
";

impl Resource {
    /// Its name in a history.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Sqlite { file, .. } => file,
            Self::Redis { key, .. } => key,
        }
    }

    /// The same resource by another way, which a proxy can hold up.
    pub(crate) fn by_way_of(&self, proxy: &Proxy) -> Self {
        match self {
            Self::Sqlite { .. } => self.clone(),
            Self::Redis { key, fenced, .. } => {
                Self::Redis { url: format!("redis://{}", proxy.addr()), key: key.clone(), fenced: *fenced }
            }
        }
    }

    const fn is_fenced(&self) -> bool {
        match self {
            Self::Sqlite { fenced, .. } | Self::Redis { fenced, .. } => *fenced,
        }
    }

    /// Reads it; zero before the first write.
    pub(super) async fn read(&self, actor: &Actor) -> Result<u64, Failure> {
        let value = match self {
            Self::Sqlite { file, .. } => open(file)?.query_row(SQLITE_READ, [], |row| row.get(0))?,
            Self::Redis { url, key, .. } => {
                let mut redis = connect(url).await?;
                let value: Option<u64> = redis::cmd("HGET").arg(key).arg("value").query_async(&mut redis).await?;
                value.unwrap_or(0)
            }
        };
        actor.read(self.name(), value);
        Ok(value)
    }

    /// Writes it by right of a hold, as which of its writes it counts. Only a hash of Redis counts.
    pub(super) async fn write_held(&self, hold: &Hold, token: Option<FencingToken>) -> Result<bool, Failure> {
        let Self::Redis { url, key, fenced } = self else { return Err("a table does not count its writes".into()) };
        let token = match token {
            Some(token) if *fenced => token.value(),
            None if *fenced => return Err("this resource wants a fencing token, and the hold has none".into()),
            _ => 0,
        };
        let mut redis = connect(url).await?;
        let script = Script::new(REDIS_WRITE_COUNTED);
        let position: u64 = script.key(key).arg(token).invoke_async(&mut redis).await?;
        if position > 0 {
            hold.wrote_as(key.as_str(), position);
        } else {
            hold.wrote(key.as_str(), false);
        }
        Ok(position > 0)
    }

    /// Writes it, and says whether it was accepted. A resource that checks tokens needs one.
    pub(super) async fn write(&self, actor: &Actor, value: u64, token: Option<FencingToken>) -> Result<bool, Failure> {
        if !self.is_fenced() {
            match self {
                Self::Sqlite { file, .. } => drop(open(file)?.execute(SQLITE_WRITE, [value])?),
                Self::Redis { url, key, .. } => {
                    let mut redis = connect(url).await?;
                    redis::cmd("HSET").arg(key).arg("value").arg(value).exec_async(&mut redis).await?;
                }
            }
            actor.wrote(self.name(), value);
            return Ok(true);
        }
        let token = token.ok_or("this resource wants a fencing token, and the hold has none")?;
        let accepted = match self {
            Self::Sqlite { file, .. } => open(file)?.execute(SQLITE_WRITE_FENCED, [value, token.value()])? == 1,
            Self::Redis { url, key, .. } => {
                let mut redis = connect(url).await?;
                let script = Script::new(REDIS_WRITE_FENCED);
                script.key(key).arg(value).arg(token.value()).invoke_async::<u64>(&mut redis).await? == 1
            }
        };
        actor.wrote_fenced(self.name(), token, accepted);
        Ok(accepted)
    }
}

async fn connect(url: &str) -> Result<MultiplexedConnection, Failure> {
    // A write may be held in the network for as long as a scenario likes.
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&patient).await?)
}

fn open(file: &str) -> Result<Connection, Failure> {
    let table = Connection::open(file)?;
    table.busy_timeout(Duration::from_secs(10))?;
    table.execute(SQLITE_TABLE, [])?;
    table.execute(SQLITE_ROW, [])?;
    Ok(table)
}
