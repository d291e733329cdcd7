use std::time::Duration;

use deadpool_redis::PoolError;
use lock_core::{Effect, Error, ErrorKind};
use redis::RedisError;

/// Why a request failed, before it is known whose request it was.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The client or the server says no.
    Redis(RedisError),
    /// No answer within the limit.
    Limit(Duration),
    /// There was no connection to send it on.
    Connect(RedisError),
    /// The pool had no connection to give; says why.
    Pool(String),
    /// The master has done it, but not enough replicas have it; says how many.
    Replicas(String),
    /// The same, and it has been undone.
    Undone(String),
    /// No master was found to send it to; says why.
    Master(String),
}

impl Failure {
    pub(crate) fn is_server_code(&self, code: &str) -> bool {
        matches!(self, Self::Redis(error) if server_code(error) == Some(code))
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::Connect(error),
            error @ (PoolError::Timeout(_)
            | PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_)) => Self::Pool(error.to_string()),
        }
    }
}

/// The one place that says what a failure means: its kind, its effect, and what to do.
pub(crate) fn explain(failure: &Failure, backend: &str, operation: &'static str) -> Error {
    let (kind, effect, says, source) = match failure {
        Failure::Limit(limit) => (
            ErrorKind::Unavailable,
            Effect::Unknown,
            format!(
                "no answer within {limit:?}; check that the server is up and reachable, or raise the request limit"
            ),
            None,
        ),
        Failure::Pool(says) => (
            ErrorKind::Unavailable,
            Effect::None,
            format!("the pool gave no connection ({says}); check its size, and that the server is up"),
            None,
        ),
        Failure::Replicas(says) | Failure::Undone(says) => (
            ErrorKind::Unavailable,
            if let Failure::Undone(_) = failure { Effect::None } else { Effect::Unknown },
            format!("too few replicas ({says}); check that they are up and follow, or ask for fewer"),
            None,
        ),
        Failure::Master(says) => (
            ErrorKind::Unavailable,
            Effect::None,
            format!("no master ({says}); check that it is up, and under Sentinel that its name in the URL is right"),
            None,
        ),
        Failure::Connect(error) => {
            let (kind, _, says) = meaning(error);
            (kind, Effect::None, says, Some(error))
        }
        Failure::Redis(error) => {
            let (kind, effect, says) = meaning(error);
            (kind, effect, says, Some(error))
        }
    };
    let error = Error::new(kind, effect, backend, operation, says);
    match source {
        Some(source) => error.with_source(source.clone()),
        None => error,
    }
}

fn meaning(error: &RedisError) -> (ErrorKind, Effect, String) {
    use redis::ErrorKind as Kind;

    if let Some(code) = server_code(error) {
        let detail = error.detail().unwrap_or_default();
        let (kind, remedy) = code_meaning(code, detail);
        // Every script of ours checks before it writes, so what the server refused has changed nothing.
        return (kind, Effect::None, format!("the server refused: {code} {detail}; {remedy}"));
    }
    match error.kind() {
        Kind::Io if error.is_connection_refusal() => (
            ErrorKind::Unavailable,
            Effect::None,
            format!("cannot connect ({error}); check that the server is up, and host and port"),
        ),
        // The client passes TLS's own errors on as text.
        Kind::Io if error.to_string().contains("certificate") => (
            ErrorKind::Rejected,
            Effect::None,
            format!(
                "TLS failed ({error}); let the system trust the server's authority, or build a client that does \
                 (`redis::Client::build_with_tls`) for `Connection::from_client`"
            ),
        ),
        Kind::Io => (
            ErrorKind::Unavailable,
            Effect::Unknown,
            format!("the connection failed ({error}); check the network and the server's log"),
        ),
        Kind::AuthenticationFailed => (
            ErrorKind::Rejected,
            Effect::None,
            format!("the server refused the credentials ({error}); check user and password in the URL"),
        ),
        Kind::InvalidClientConfig => (ErrorKind::InvalidInput, Effect::None, config_says(error)),
        Kind::RESP3NotSupported => (
            ErrorKind::Unsupported,
            Effect::None,
            "the server does not speak RESP3 (it refused HELLO 3); Redis 6.2 or newer is needed".to_owned(),
        ),
        _ => (
            ErrorKind::Backend,
            Effect::Unknown,
            format!("the answer was not understood ({error}); check that this is a Redis server, and report it"),
        ),
    }
}

fn config_says(error: &RedisError) -> String {
    let says = error.to_string();
    if says.contains("did not parse") {
        "the URL is not one of redis://, rediss:// (TLS), redis+unix:// or unix:// (a socket's path); write it as \
         redis://user:password@host:port/db"
            .to_owned()
    } else if says.contains("feature is not enabled") {
        "the URL asks for TLS, which this build leaves out; enable the feature `tls` of lock-redis".to_owned()
    } else {
        format!("the settings are wrong ({says}); correct the URL")
    }
}

/// The meaning of the first word of an error reply.
fn code_meaning(code: &str, detail: &str) -> (ErrorKind, &'static str) {
    match code {
        "LOADING" => (ErrorKind::Unavailable, "it is reading its data; try again when it has started"),
        "READONLY" => (ErrorKind::Unavailable, "it is a replica; connect to the master"),
        "MASTERDOWN" => (ErrorKind::Unavailable, "it is a replica without its master; connect to the master"),
        "BUSY" | "UNKILLABLE" => (ErrorKind::Unavailable, "a script keeps it busy; see SCRIPT KILL"),
        "TRYAGAIN" | "CLUSTERDOWN" => (ErrorKind::Unavailable, "the cluster is being changed or is down; try again"),
        "NOREPLICAS" => (ErrorKind::Unavailable, "too few replicas are in reach; see min-replicas-to-write"),
        "ERR" if detail.contains("max number of clients") => {
            (ErrorKind::Unavailable, "it has no connection left; raise maxclients or use fewer")
        }
        "OOM" => (ErrorKind::Rejected, "its memory is full; raise maxmemory or make room"),
        "MISCONF" => (ErrorKind::Rejected, "it cannot write to its disk and refuses writes; see its log"),
        "NOPERM" => (ErrorKind::Rejected, "grant the user what is named; the crate's docs list the rights needed"),
        "NOAUTH" | "WRONGPASS" => (ErrorKind::Rejected, "check user and password in the URL"),
        "WRONGTYPE" => (
            ErrorKind::Rejected,
            "another program keeps something else under this name; use another name or prefix, or delete that key",
        ),
        "MOVED" | "ASK" | "CROSSSLOT" => {
            (ErrorKind::Unsupported, "this is a node of a Redis Cluster; connect with `open_cluster`")
        }
        "ERR" if detail.contains("cluster support disabled") => {
            (ErrorKind::Unsupported, "this is no node of a Redis Cluster; connect with `open`")
        }
        _ => (ErrorKind::Backend, "this is not expected; look the message up, and report it"),
    }
}

/// The first word of an error reply; of the command's inside a script, where Redis 6.2 wraps it in an `ERR`.
pub(crate) fn server_code(error: &RedisError) -> Option<&str> {
    let code = error.code()?;
    let Some(detail) = error.detail().filter(|_| code == "ERR") else { return Some(code) };
    // Redis up to 7.0, and from 7.2 on, of a command that the user may not call inside a script.
    if detail.contains("The user executing the script can't") || detail.contains("ACL failure in script") {
        return Some("NOPERM");
    }
    if !detail.starts_with("Error running script") {
        return Some(code);
    }
    let mut words = detail.split_ascii_whitespace().map(|word| word.trim_start_matches('-'));
    Some(words.find(|word| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase())).unwrap_or(code))
}

#[cfg(test)]
mod tests {
    use std::io;

    use redis::ErrorKind as Kind;

    use super::*;

    fn reply(line: &str) -> RedisError {
        redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap().extract_error().unwrap_err()
    }

    fn io_error(kind: io::ErrorKind) -> RedisError {
        RedisError::from(io::Error::from(kind))
    }

    #[test]
    fn each_failure_has_its_kind_its_effect_and_a_remedy() {
        use lock_core::{Effect as E, ErrorKind as K};

        let in_script_of_6_2 = "ERR Error running script (call to f_ab12): @user_script:7: ";
        let table = [
            (Failure::Limit(Duration::from_secs(1)), K::Unavailable, E::Unknown, "no answer within 1s"),
            (Failure::Pool("Pool has been closed".into()), K::Unavailable, E::None, "the pool gave no connection"),
            (
                Failure::Master("the sentinels know none called `a`".into()),
                K::Unavailable,
                E::None,
                "its name in the URL",
            ),
            (Failure::Connect(io_error(io::ErrorKind::ConnectionReset)), K::Unavailable, E::None, "the connection"),
            (io_error(io::ErrorKind::ConnectionRefused).into(), K::Unavailable, E::None, "cannot connect"),
            (io_error(io::ErrorKind::NotFound).into(), K::Unavailable, E::None, "cannot connect"),
            (io_error(io::ErrorKind::BrokenPipe).into(), K::Unavailable, E::Unknown, "the connection failed"),
            (io_error(io::ErrorKind::ConnectionReset).into(), K::Unavailable, E::Unknown, "the connection failed"),
            (io_error(io::ErrorKind::TimedOut).into(), K::Unavailable, E::Unknown, "the connection failed"),
            (
                RedisError::from(io::Error::new(io::ErrorKind::InvalidData, "invalid peer certificate: Expired"))
                    .into(),
                K::Rejected,
                E::None,
                "trust the server's authority",
            ),
            (reply("LOADING Redis is loading").into(), K::Unavailable, E::None, "reading its data"),
            (reply("READONLY You can't write").into(), K::Unavailable, E::None, "connect to the master"),
            (reply("MASTERDOWN Link with MASTER").into(), K::Unavailable, E::None, "connect to the master"),
            (reply("BUSY Redis is busy running a script").into(), K::Unavailable, E::None, "SCRIPT KILL"),
            (reply("TRYAGAIN Multiple keys").into(), K::Unavailable, E::None, "try again"),
            (reply("CLUSTERDOWN The cluster is down").into(), K::Unavailable, E::None, "try again"),
            (reply("NOREPLICAS Not enough good replicas").into(), K::Unavailable, E::None, "min-replicas-to-write"),
            (reply("ERR max number of clients reached").into(), K::Unavailable, E::None, "maxclients"),
            (reply("OOM command not allowed").into(), K::Rejected, E::None, "raise maxmemory"),
            (reply("MISCONF Redis is configured to save").into(), K::Rejected, E::None, "its disk"),
            (reply("NOPERM this user has no permissions").into(), K::Rejected, E::None, "grant the user"),
            (reply("NOAUTH Authentication required.").into(), K::Rejected, E::None, "user and password"),
            (reply("WRONGPASS invalid username-password pair").into(), K::Rejected, E::None, "user and password"),
            (reply("WRONGTYPE Operation against a key").into(), K::Rejected, E::None, "another name or prefix"),
            (reply(&format!("{in_script_of_6_2}WRONGTYPE Operation")).into(), K::Rejected, E::None, "another name"),
            (reply(&format!("{in_script_of_6_2}-OOM command not")).into(), K::Rejected, E::None, "raise maxmemory"),
            (
                reply("ERR The user executing the script can't run this command or subcommand script: 9f, on ...")
                    .into(),
                K::Rejected,
                E::None,
                "grant the user",
            ),
            (
                reply("ERR ACL failure in script: User app has no permissions to run the 'publish' command").into(),
                K::Rejected,
                E::None,
                "grant the user",
            ),
            (reply("MOVED 3999 127.0.0.1:6381").into(), K::Unsupported, E::None, "Redis Cluster"),
            (reply("CROSSSLOT Keys in request").into(), K::Unsupported, E::None, "Redis Cluster"),
            (reply("ERR This instance has cluster support disabled").into(), K::Unsupported, E::None, "with `open`"),
            (reply("ERR something new").into(), K::Backend, E::None, "report it"),
            (RedisError::from((Kind::AuthenticationFailed, "no")).into(), K::Rejected, E::None, "user and password"),
            (RedisError::from((Kind::RESP3NotSupported, "no")).into(), K::Unsupported, E::None, "6.2 or newer"),
            (RedisError::from((Kind::UnexpectedReturnType, "no")).into(), K::Backend, E::Unknown, "report it"),
        ];
        for (failure, kind, effect, says) in table {
            let error = explain(&failure, "redis", "acquire");
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{failure:?}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_used_says_which_can() {
        let parsed = |url: &str| explain(&redis::Client::open(url).unwrap_err().into(), "redis", "connect");
        for url in ["http://localhost", "localhost:6379", "redis//x", ""] {
            let error = parsed(url);
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("redis://, rediss:// (TLS), redis+unix://"), "{error}");
        }
        let error = parsed("redis://localhost/nine");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("Invalid database number"), "{error}");
        #[cfg(not(feature = "tls"))]
        assert!(parsed("rediss://localhost").to_string().contains("enable the feature `tls`"));
    }
}
