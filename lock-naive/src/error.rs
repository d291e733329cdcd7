use std::time::Duration;

use lock_core::{Effect, Error, ErrorKind, LockKey};
use redis::{ErrorKind as Kind, RedisError};

/// Says in our words what went wrong in one request.
pub(crate) fn from_redis(source: RedisError, strategy: &str, operation: &'static str) -> Error {
    let (kind, effect, advice) = classify(&source);
    Error::new(kind, effect, strategy, operation, format!("{source}; {advice}")).with_source(source)
}

/// A request that had no answer within its limit.
pub(crate) fn unanswered(limit: Duration, strategy: &str, operation: &'static str) -> Error {
    let says = format!("the server did not answer within {limit:?}; check that it runs and can be reached");
    Error::new(ErrorKind::Unavailable, Effect::Unknown, strategy, operation, says)
}

/// A key of ours that holds what no lock of this strategy writes.
pub(crate) fn foreign(wire_key: &str, holds: &str, strategy: &str, operation: &'static str) -> Error {
    let says = format!("the key `{wire_key}` holds {holds}, not a lock; delete it, or set another prefix");
    Error::new(ErrorKind::Rejected, Effect::None, strategy, operation, says)
}

/// A renewal that found no entry.
pub(crate) fn lost(key: &LockKey, strategy: &str) -> Error {
    let says = "the entry is gone; stop the work that it guarded";
    Error::new(ErrorKind::Lost, Effect::None, strategy, "renew", says).with_key(key)
}

/// What kind of failure it is, whether the request may have been applied, and what to do.
fn classify(error: &RedisError) -> (ErrorKind, Effect, &'static str) {
    if let Some(code) = error.code() {
        let (kind, advice) = refused(code);
        // Each request is one command, and one that the server has refused did nothing.
        return (kind, Effect::None, advice);
    }
    match error.kind() {
        Kind::Io if error.is_connection_refusal() => {
            (ErrorKind::Unavailable, Effect::None, "check that the server runs and that the address is right")
        }
        Kind::Io => (ErrorKind::Unavailable, Effect::Unknown, "the connection was lost; the request may have arrived"),
        Kind::AuthenticationFailed => (ErrorKind::Rejected, Effect::None, "check the user and the password in the URL"),
        Kind::InvalidClientConfig => {
            (ErrorKind::InvalidInput, Effect::None, "give a URL such as `redis://user:password@host:6379/0`")
        }
        _ => (ErrorKind::Backend, Effect::Unknown, "the reply makes no sense; check that this is a Redis server"),
    }
}

/// The meaning of an error reply's first word.
fn refused(code: &str) -> (ErrorKind, &'static str) {
    match code {
        "LOADING" | "MASTERDOWN" | "READONLY" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "NOREPLICAS" => {
            (ErrorKind::Unavailable, "the server cannot serve this now; it is worth another try")
        }
        "NOAUTH" | "WRONGPASS" => (ErrorKind::Rejected, "check the user and the password in the URL"),
        "NOPERM" => (ErrorKind::Rejected, "grant the user the strategy's commands on the prefix's keys"),
        "WRONGTYPE" => (ErrorKind::Rejected, "the key is not a lock; delete it, or set another prefix"),
        "OOM" => (ErrorKind::Rejected, "the server is full; raise `maxmemory`"),
        "MISCONF" => (ErrorKind::Rejected, "the server refuses writes; its own log says why"),
        "MOVED" | "ASK" | "CROSSSLOT" => {
            (ErrorKind::Unsupported, "these strategies work on a single server; do not point them at a cluster")
        }
        _ => (ErrorKind::Backend, "Redis 6.2 and later know this command; look the message up"),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io;

    use super::*;

    #[test]
    fn each_client_error_has_a_kind_an_effect_and_advice() {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused).into();
        let reset = || io::Error::from(io::ErrorKind::ConnectionReset).into();
        let reply = |line: &str| {
            redis::parse_redis_value(format!("-{line}\r\n").as_bytes())
                .map_or_else(|error| error, |value| value.extract_error().expect_err("an error reply"))
        };
        let table: Vec<(RedisError, ErrorKind, Effect, &str)> = vec![
            (refused(), ErrorKind::Unavailable, Effect::None, "check that the server runs"),
            (reset(), ErrorKind::Unavailable, Effect::Unknown, "may have arrived"),
            ((Kind::AuthenticationFailed, "no").into(), ErrorKind::Rejected, Effect::None, "password"),
            ((Kind::InvalidClientConfig, "no").into(), ErrorKind::InvalidInput, Effect::None, "give a URL"),
            ((Kind::UnexpectedReturnType, "no").into(), ErrorKind::Backend, Effect::Unknown, "makes no sense"),
            ((Kind::Parse, "no").into(), ErrorKind::Backend, Effect::Unknown, "makes no sense"),
            (reply("LOADING wait"), ErrorKind::Unavailable, Effect::None, "another try"),
            (reply("MASTERDOWN wait"), ErrorKind::Unavailable, Effect::None, "another try"),
            (reply("READONLY replica"), ErrorKind::Unavailable, Effect::None, "another try"),
            (reply("BUSY script"), ErrorKind::Unavailable, Effect::None, "another try"),
            (reply("NOPERM no"), ErrorKind::Rejected, Effect::None, "grant the user"),
            (reply("NOAUTH no"), ErrorKind::Rejected, Effect::None, "password"),
            (reply("WRONGPASS no"), ErrorKind::Rejected, Effect::None, "password"),
            (reply("WRONGTYPE no"), ErrorKind::Rejected, Effect::None, "not a lock"),
            (reply("OOM full"), ErrorKind::Rejected, Effect::None, "maxmemory"),
            (reply("MISCONF disk"), ErrorKind::Rejected, Effect::None, "its own log"),
            (reply("NOREPLICAS few"), ErrorKind::Unavailable, Effect::None, "another try"),
            (reply("MOVED 1 host:1"), ErrorKind::Unsupported, Effect::None, "single server"),
            (reply("ERR unknown command"), ErrorKind::Backend, Effect::None, "Redis 6.2"),
            (reply("SURPRISE what"), ErrorKind::Backend, Effect::None, "Redis 6.2"),
        ];
        for (source, kind, effect, advice) in table {
            let says = source.to_string();
            let error = from_redis(source, "naive", "acquire");
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{error}");
            assert!(error.to_string().contains(&says) && error.to_string().contains(advice), "{error}");
            assert!(error.source().is_some(), "{error}");
        }
    }

    #[test]
    fn no_answer_may_have_been_applied() {
        let error = unanswered(Duration::from_secs(1), "naive", "renew");
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
    }
}
