use redis::{Client, ConnectionAddr, ConnectionInfo, RedisError, RedisResult};

/// A server on the network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// None for a socket.
    pub(crate) fn of(address: &ConnectionAddr) -> Option<Self> {
        match address {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Self { host: host.clone(), port: *port })
            }
            _ => None,
        }
    }

    /// Where MOVED or ASK of the server at this address sends a request. Without a host it is the same.
    pub(crate) fn redirected(&self, error: &RedisError) -> Option<Self> {
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        let host = if host.is_empty() { &self.host } else { host };
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }
}

/// A client of the server at `address`, with these settings.
pub(crate) fn client_at(settings: &ConnectionInfo, address: &Address) -> RedisResult<Client> {
    let Address { host, port } = address.clone();
    let address = match settings.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    Client::open(settings.clone().set_addr(address))
}
