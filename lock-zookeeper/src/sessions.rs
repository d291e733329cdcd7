use std::fmt;
use std::sync::Arc;

use lock_core::Moment;
use tokio::sync::Mutex;
use tokio::time::timeout;
use zookeeper_client::Connector;

use crate::Config;
use crate::error::Failure;
use crate::session::Session;

/// The session in use. A client is dead for good after its session has ended, so a new one is made then, for later claims.
pub(crate) struct Sessions {
    connector: Connector,
    hosts: String,
    current: Mutex<Option<Arc<Session>>>,
}

impl Sessions {
    pub(crate) fn new(connector: Connector, hosts: String) -> Self {
        Self { connector, hosts, current: Mutex::new(None) }
    }

    /// The session in use, or a new one. One connects; who comes meanwhile waits for it, each within the limit.
    pub(crate) async fn current(&self, config: &Config) -> Result<Arc<Session>, Failure> {
        let limit = config.connect_limit;
        timeout(limit, self.find_or_make(config)).await.map_err(|_elapsed| Failure::ConnectLimit(limit))?
    }

    /// Ends the session in use.
    pub(crate) async fn close(&self, config: &Config) -> Result<(), Failure> {
        let limit = config.connect_limit;
        let current = timeout(limit, self.current.lock()).await.map_err(|_elapsed| Failure::NotClosed(limit))?.take();
        match current {
            Some(session) => session.close().await,
            None => Ok(()),
        }
    }

    async fn find_or_make(&self, config: &Config) -> Result<Arc<Session>, Failure> {
        let mut current = self.current.lock().await;
        if let Some(session) = current.as_ref().filter(|session| !session.is_over()) {
            return Ok(Arc::clone(session));
        }
        let made = Moment::now();
        let client = self.connector.clone().connect(&self.hosts).await.map_err(Failure::Connect)?;
        let session = Session::start(client, made, config.request_limit);
        tracing::debug!(?session, "a session was made");
        Ok(Arc::clone(current.insert(session)))
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}
