//! The suite on real servers: one and three, each naming.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Backend, Guarantees};
use lock_testkit::ZooKeeperEnsemble;
use lock_testkit::suite::{self, Clock, Fixture};
use lock_zookeeper::{Config, Naming, ZooKeeper};
use zookeeper_client::Client;

/// Long enough for a busy machine to keep it alive.
const SESSION: Duration = Duration::from_secs(10);

fn main() {
    let ensembles = [1, 3].map(|members| {
        let builder = ZooKeeperEnsemble::builder(members).tick(Duration::from_millis(500));
        Arc::new(builder.start().expect("ZooKeeper starts"))
    });
    let [one, three] = &ensembles;
    let ways = [
        ("zookeeper on one server", one, Naming::Curator),
        ("zookeeper on three servers", three, Naming::Curator),
        ("zookeeper on three servers named as kazoo", three, Naming::Kazoo),
    ];
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let fixtures = ways.map(|(name, ensemble, naming)| {
        let config = Config::new().with_prefix(format!("/{naming:?}")).with_naming(naming);
        let connecting = ZooKeeper::from_connector(connector(), ensemble.hosts(), config.clone());
        let guarantees = runtime.block_on(connecting).expect("the servers have just started").guarantees();
        Arc::new(OnZooKeeper { name, ensemble: Arc::clone(ensemble), config, guarantees }) as Arc<dyn Fixture>
    });
    let conclusion = suite::run(fixtures);
    // `exit` runs no destructors, so the servers are ended here.
    drop(ensembles);
    conclusion.exit();
}

fn connector() -> zookeeper_client::Connector {
    Client::connector().with_session_timeout(SESSION)
}

struct OnZooKeeper {
    name: &'static str,
    ensemble: Arc<ZooKeeperEnsemble>,
    config: Config,
    guarantees: Guarantees,
}

#[async_trait]
impl Fixture for OnZooKeeper {
    fn name(&self) -> &str {
        self.name
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    fn clock(&self) -> Clock {
        Clock::Real
    }

    async fn connect(&self) -> Arc<dyn Backend> {
        let connecting = ZooKeeper::from_connector(connector(), self.ensemble.hosts(), self.config.clone());
        Arc::new(connecting.await.expect("the servers run"))
    }
}
