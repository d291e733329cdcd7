//! Who is the master now, by what its sentinels say (redis.io, "Sentinel client spec").

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, RedisError, RedisResult};

use crate::address::{Address, client_at};
use crate::error::{Failure, server_code};

/// The sentinels of one master, and how to connect to whatever server that is.
pub(crate) struct Sentinels {
    sentinels: Vec<Client>,
    /// The master's settings, with its name under Sentinel in the place of the host.
    master: ConnectionInfo,
    name: String,
}

impl Sentinels {
    /// None if the master's address has no host to take for its name, as that of a socket.
    pub(crate) fn new(sentinels: Vec<Client>, master: ConnectionInfo) -> Option<Self> {
        let name = Address::of(master.addr())?.host;
        Some(Self { sentinels, master, name })
    }

    /// A client of the server that the sentinels take for the master. That it does so itself is for the caller to check.
    ///
    /// All are asked at once, so that one that is silent costs nothing. The answer is what more than half of them say, so
    /// that one that is cut off, with an old master beside it, does not decide; or what most of those say that answer at all.
    pub(crate) async fn master(&self, limit: Duration) -> Result<Client, Failure> {
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(limit)).set_response_timeout(Some(limit));
        let mut answers: FuturesUnordered<_> =
            self.sentinels.iter().map(|sentinel| ask(sentinel, &self.name, &config)).collect();
        let mut votes = HashMap::<Address, usize>::new();
        let mut unknown = false;
        let mut failed = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(Some(address)) => {
                    let votes = votes.entry(address.clone()).or_default();
                    *votes += 1;
                    if *votes > self.sentinels.len() / 2 {
                        return self.client(&address);
                    }
                }
                Ok(None) => unknown = true,
                Err(error) => failed = Some(error),
            }
        }
        if let Some((address, _)) = votes.iter().max_by_key(|(_, votes)| **votes) {
            return self.client(address);
        }
        Err(match failed {
            Some(error) if !unknown => Failure::Connect(error),
            _ => Failure::Master(format!("the sentinels know none called `{}`", self.name)),
        })
    }

    fn client(&self, address: &Address) -> Result<Client, Failure> {
        Ok(client_at(&self.master, address)?)
    }
}

async fn ask(sentinel: &Client, name: &str, config: &AsyncConnectionConfig) -> RedisResult<Option<Address>> {
    let mut connection = sentinel.get_multiplexed_async_connection_with_config(config).await?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let answer: Option<(String, u16)> = command.query_async(&mut connection).await?;
    Ok(answer.map(|(host, port)| Address { host, port }))
}

/// Whether the error says that this is not the master any more, or may not be: then the sentinels are asked again.
pub(crate) fn is_doubtful(error: &RedisError) -> bool {
    error.is_io_error() || matches!(server_code(error), Some("READONLY" | "MASTERDOWN"))
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.sentinels.iter().map(|sentinel| sentinel.get_connection_info().addr().to_string());
        f.debug_struct("Sentinels")
            .field("master", &self.name)
            .field("sentinels", &addresses.collect::<Vec<_>>())
            .finish()
    }
}
