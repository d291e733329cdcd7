//! The suite on real servers: a cluster of one member, one of three, and a client that the program brings.

use std::sync::Arc;

use async_trait::async_trait;
use etcd_client::{Client, ConnectOptions};
use lock_core::{Backend, Guarantees};
use lock_etcd::{Config, Etcd};
use lock_testkit::EtcdCluster;
use lock_testkit::suite::{self, Clock, Fixture};

fn main() {
    let one = Arc::new(EtcdCluster::start().expect("etcd starts"));
    let three = Arc::new(EtcdCluster::builder().members(3).start().expect("etcd starts three times"));
    let ways = [
        ("etcd, one member", &one, Way::Endpoints),
        ("etcd, three members", &three, Way::Endpoints),
        ("etcd, a client of the program's", &one, Way::Client),
    ];
    let guarantees = Etcd::connect(one.urls()).expect("an endpoint is named").guarantees();
    let fixtures =
        ways.map(|(name, cluster, way)| Arc::new(OnEtcd { name, cluster: Arc::clone(cluster), way, guarantees }) as _);
    let conclusion = suite::run(fixtures);
    // `exit` runs no destructors, so the members are ended here.
    drop((one, three));
    conclusion.exit();
}

#[derive(Clone, Copy)]
enum Way {
    Endpoints,
    Client,
}

struct OnEtcd {
    name: &'static str,
    cluster: Arc<EtcdCluster>,
    way: Way,
    guarantees: Guarantees,
}

#[async_trait]
impl Fixture for OnEtcd {
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
        let urls = self.cluster.urls();
        Arc::new(match self.way {
            Way::Endpoints => Etcd::connect(urls).expect("an endpoint is named"),
            Way::Client => {
                let options = ConnectOptions::new().with_require_leader(true);
                let client = Client::connect(urls, Some(options)).await.expect("connecting does no I/O");
                Etcd::from_client(&client, Config::new()).expect("the defaults are valid")
            }
        })
    }
}
