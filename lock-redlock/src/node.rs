//! One Redis of the several, and what it is asked.

use std::fmt;
use std::time::Duration;

use lock_core::{Effect, Error, ErrorKind, Result};
use lock_redis::{Call, Config, Connection, Ttl};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::entry::{Entry, Names};
use crate::mint::Reading;
use crate::scripts;

/// One node. One that is down when the program starts is connected to when it is needed and there.
pub(crate) struct Node {
    connection: OnceCell<Connection>,
    address: Option<(String, Config)>,
}

/// What a node knows of a held lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) value: String,
    pub(crate) remaining: Option<Duration>,
    /// The last token, and the claim that put it down.
    pub(crate) fence: Option<(u64, String)>,
}

impl Node {
    pub(crate) fn at(url: &str, config: Config) -> Self {
        Self { connection: OnceCell::new(), address: Some((url.to_owned(), config)) }
    }

    pub(crate) fn over(connection: Connection) -> Self {
        Self { connection: OnceCell::new_with(Some(connection)), address: None }
    }

    /// The connection, made now if there is none. Nothing of a lock has been sent if it fails.
    pub(crate) async fn connection(&self) -> Result<&Connection> {
        let Some((url, config)) = &self.address else {
            return Ok(self.connection.get().expect("a node without an address was made over a connection"));
        };
        let limit = config.request_limit;
        // Several may wait here for one that connects, and each for itself.
        match timeout(limit, self.connection.get_or_try_init(|| Connection::open(url, config.clone()))).await {
            Ok(connection) => connection.map_err(|error| error.with_effect(Effect::None)),
            Err(_elapsed) => {
                let says = format!("cannot connect within {limit:?}; check that the node is up and reachable");
                Err(Error::new(ErrorKind::Unavailable, Effect::None, "redis", "connect", says))
            }
        }
    }

    /// Its vote in `round`, if it gives it, and with fencing what its fence and its clock say.
    pub(crate) async fn acquire(&self, entry: &Entry, round: u64, ttl: &Ttl) -> Result<Option<Reading>> {
        let (connection, round) = (self.connection().await?, round.to_string());
        if entry.names.fence.is_none() {
            // What the script does with a lock that is free, at a fraction of its cost. One that is not may be this claim's.
            let value = [&*entry.claim, ":", &round, &entry.label].concat();
            if connection.set_if_absent("acquire", &entry.names.lock, &value, ttl).await? {
                return Ok(Some(Reading::default()));
            }
        }
        let keys = entry.names.all();
        let call = Call { keys: &keys, args: &[&entry.claim, &round, &ttl.millis, &entry.label] };
        let answer: Vec<u64> = connection.run_script("acquire", &scripts::ACQUIRE, &call).await?;
        match *answer {
            [0] => Ok(None),
            [1] => Ok(Some(Reading::default())),
            [1, last, is_own, seconds, micros] => {
                Ok(Some(Reading { last, is_own: is_own == 1, time: seconds * 1_000_000 + micros }))
            }
            _ => {
                let says = format!("the script answered {answer:?}; this is a defect, report it");
                Err(Error::new(ErrorKind::Backend, Effect::Unknown, "redis", "acquire", says))
            }
        }
    }

    /// Whether it has put `token` down for the claim.
    pub(crate) async fn mint(&self, entry: &Entry, token: u64, ttl: &Ttl) -> Result<Option<()>> {
        let (keys, token) = (entry.names.all(), token.to_string());
        let call = Call { keys: &keys, args: &[&entry.claim, &token, &ttl.fence_millis] };
        self.connection().await?.run_script("acquire", &scripts::MINT, &call).await.map(yes)
    }

    /// Whether each lock was still the claim's, and has been renewed; with the round that won it.
    pub(crate) async fn renew(&self, batch: &[(Entry, u64, Ttl)]) -> Vec<Result<Option<()>>> {
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(error) => return vec![Err(error); batch.len()],
        };
        let keys: Vec<_> = batch.iter().map(|(entry, ..)| entry.names.all()).collect();
        let rounds: Vec<_> = batch.iter().map(|(_, round, _)| round.to_string()).collect();
        let args = batch.iter().zip(&rounds);
        let args: Vec<_> =
            args.map(|((entry, _, ttl), round)| [&*entry.claim, &ttl.millis, &ttl.fence_millis, round]).collect();
        let calls: Vec<_> = keys.iter().zip(&args).map(|(keys, args)| Call { keys, args }).collect();
        let answers = connection.run_script_for_each("renew", &scripts::RENEW, &calls).await;
        answers.into_iter().map(|answer| answer.map(yes)).collect()
    }

    /// Whether the lock was the claim's, and is free now; of one round and those before it, or of any.
    pub(crate) async fn release(
        &self,
        entry: &Entry,
        round: Option<u64>,
        operation: &'static str,
    ) -> Result<Option<()>> {
        let round = round.map(|round| round.to_string()).unwrap_or_default();
        let call = Call { keys: &[&entry.names.lock], args: &[&entry.claim, &round] };
        self.connection().await?.run_script(operation, &scripts::RELEASE, &call).await.map(yes)
    }

    /// Whether the lock was held, and is free now.
    pub(crate) async fn force_release(&self, names: &Names) -> Result<Option<()>> {
        let call = Call { keys: &[&names.lock], args: &[] };
        self.connection().await?.run_script("force_release", &scripts::FORCE_RELEASE, &call).await.map(yes)
    }

    /// What it knows of the lock, if it is held there.
    pub(crate) async fn inspect(&self, names: &Names) -> Result<Option<Seen>> {
        let keys = names.all();
        let call = Call { keys: &keys, args: &[] };
        let seen: Option<(Vec<u8>, u64, Option<String>)> =
            self.connection().await?.run_script("inspect", &scripts::INSPECT, &call).await?;
        Ok(seen.map(|(value, remaining, fence)| Seen {
            value: String::from_utf8_lossy(&value).into_owned(),
            remaining: (remaining > 0).then(|| Duration::from_millis(remaining)),
            fence: fence.as_deref().and_then(parse_fence),
        }))
    }

    /// The keys of locks that begin with `prefix`.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.connection().await?.strings_beginning_with(prefix).await
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold a password.
        match self.connection.get() {
            Some(connection) => connection.fmt(f),
            None => f.write_str("Node(not connected)"),
        }
    }
}

fn yes(answer: i64) -> Option<()> {
    (answer > 0).then_some(())
}

fn parse_fence(value: &str) -> Option<(u64, String)> {
    let (token, claim) = value.split_once(' ')?;
    Some((token.parse().ok()?, claim.to_owned()))
}

#[cfg(test)]
mod tests;
