//! What is asked of a server before the first lock: is it new enough, may we run scripts, may we use the channel, and will
//! it keep what we write.

use lock_core::{Effect, Error, ErrorKind, Result};
use redis::RedisResult;

use crate::connection::Connection;
use crate::error::{Failure, explain};
use crate::script;

/// The oldest Redis that this crate is made for.
const FLOOR: (u32, u32) = (6, 2);

/// The oldest with channels that belong to slots.
const SHARDED: (u32, u32) = (7, 0);

const CONNECT: &str = "connect";

/// Checks the server behind `connection`, and loads the scripts.
pub(crate) async fn server(connection: &Connection) -> Result<()> {
    match info(connection, "server").await? {
        Some(info) => {
            let version = check_version(&info)?;
            if let Some(cluster) = connection.cluster() {
                cluster.set_sharded(version >= SHARDED);
            }
        }
        None => tracing::debug!("the user may not ask INFO; the server's version is not checked"),
    }
    load_scripts(connection).await?;
    if let Some(info) = info(connection, "memory").await?
        && let Some(policy) = field(&info, "maxmemory_policy")
        && policy != "noeviction"
    {
        tracing::warn!(
            policy,
            "this Redis may evict locks while they are held: set maxmemory-policy to noeviction, or keep locks elsewhere"
        );
    }
    Ok(())
}

/// How a lock may use its channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelRights {
    /// Releases may tell the waiters.
    pub(crate) publish: bool,
    /// Waiters may listen.
    pub(crate) subscribe: bool,
}

/// Tries the channel of one lock of this kind.
pub(crate) async fn channel(connection: &Connection, channel: &str, backend: &str) -> Result<ChannelRights> {
    let mut command = redis::cmd(publish(connection.is_sharded()));
    let publish = connection.command::<i64>(command.arg(channel).arg("0")).await.map(|_| ());
    let publish = permitted(publish, backend)?;
    let subscribe = connection.has_pushes() && permitted(connection.try_channel(channel).await, backend)?;
    if !publish || (connection.has_pushes() && !subscribe) {
        tracing::warn!(
            channel,
            publish,
            subscribe,
            "the user may not use this channel, so waiters poll: grant it, and the commands PUBLISH and SUBSCRIBE"
        );
    }
    Ok(ChannelRights { publish, subscribe })
}

/// The command that publishes on a channel.
pub(crate) const fn publish(sharded: bool) -> &'static str {
    if sharded { "SPUBLISH" } else { "PUBLISH" }
}

fn permitted(answer: Result<(), Failure>, backend: &str) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(failure) if failure.is_server_code("NOPERM") => Ok(false),
        Err(failure) => Err(explain(&failure, backend, CONNECT)),
    }
}

/// A section of INFO, or nothing if the user may not see it.
async fn info(connection: &Connection, section: &str) -> Result<Option<String>> {
    match connection.command::<String>(redis::cmd("INFO").arg(section)).await {
        Ok(info) => Ok(Some(info)),
        Err(failure) if failure.is_server_code("NOPERM") => Ok(None),
        Err(failure) => Err(explain(&failure, "redis", CONNECT)),
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn check_version(info: &str) -> Result<(u32, u32)> {
    let Some(version) = field(info, "redis_version") else { return Ok(FLOOR) };
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version_pair = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if version_pair >= FLOOR {
        return Ok(version_pair);
    }
    let says = format!("the server is Redis {version}, and 6.2 or newer is needed; upgrade it");
    Err(Error::new(ErrorKind::Unsupported, Effect::None, "redis", CONNECT, says))
}

async fn load_scripts(connection: &Connection) -> Result<()> {
    let mut pipeline = redis::pipe();
    for script in [
        &script::TOKEN_ACQUIRE,
        &script::TOKEN_RENEW,
        &script::TOKEN_RELEASE,
        &script::REENTRANT_ACQUIRE,
        &script::REENTRANT_RENEW,
        &script::REENTRANT_RELEASE,
        &script::FORCE_RELEASE,
    ] {
        pipeline.add_command(script.load());
    }
    let answers: Vec<RedisResult<String>> =
        connection.pipeline(pipeline.ignore_errors()).await.map_err(|failure| explain(&failure, "redis", CONNECT))?;
    if answers.iter().all(Result::is_ok) {
        return Ok(());
    }
    // SCRIPT may be refused and EVAL allowed: then each script travels once as text.
    match connection.command::<i64>(redis::cmd("EVAL").arg("return 1").arg(0)).await {
        Ok(_) => Ok(()),
        Err(failure) if failure.is_server_code("NOPERM") => {
            let says = "the user may not run scripts; grant it +eval, +evalsha and +script|load";
            Err(Error::new(ErrorKind::Rejected, Effect::None, "redis", CONNECT, says))
        }
        Err(failure @ Failure::Redis(_)) => {
            let error = explain(&failure, "redis", CONNECT);
            if error.kind() != ErrorKind::Backend {
                return Err(error);
            }
            let says = "the server does not run Lua scripts (EVAL), which every lock of this crate needs; use Redis 6.2 or newer";
            Err(Error::new(ErrorKind::Unsupported, Effect::None, "redis", CONNECT, says).with_source(error))
        }
        Err(failure) => Err(explain(&failure, "redis", CONNECT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_from_6_2_on_pass() {
        for version in ["6.2.0", "6.2.14", "7.0.15", "8.0-rc1", "10.0.0", "255.255.255"] {
            check_version(&format!("# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\n")).unwrap();
        }
        for version in ["6.0.16", "5.0.7", "2.8.0"] {
            let error = check_version(&format!("redis_version:{version}\r\n")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(&format!("Redis {version}, and 6.2 or newer")), "{error}");
        }
    }
}
