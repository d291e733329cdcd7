//! Who is the master now, by what its sentinels say (redis.io, "Sentinel client spec").

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisError, RedisResult};

use crate::error::{Failure, server_code};

type Address = (String, u16);

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
        let name = match master.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
            _ => return None,
        };
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

    fn client(&self, (host, port): &Address) -> Result<Client, Failure> {
        let (host, port) = (host.clone(), *port);
        let address = match self.master.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                let (insecure, tls_params) = (*insecure, tls_params.clone());
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Ok(Client::open(self.master.clone().set_addr(address))?)
    }
}

async fn ask(sentinel: &Client, name: &str, config: &AsyncConnectionConfig) -> RedisResult<Option<Address>> {
    let mut connection = sentinel.get_multiplexed_async_connection_with_config(config).await?;
    redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).query_async(&mut connection).await
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
