//! The suite on real nodes: three, five and four of them, plain and with fencing tokens.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Backend, Guarantees};
use lock_redis::Config;
use lock_redlock::{Redlock, RedlockOptions};
use lock_testkit::RedisNodes;
use lock_testkit::suite::{self, Clock, Fixture};

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let start = |count| Arc::new(RedisNodes::start(count).expect("redis-server starts"));
    let (three, four, five) = (start(3), start(4), start(5));
    let ways = [
        ("redlock on 3 nodes", &three, false),
        ("redlock on 4 nodes", &four, false),
        ("redlock on 5 nodes", &five, false),
        ("fenced redlock on 3 nodes", &three, true),
        ("fenced redlock on 5 nodes", &five, true),
    ];
    let fixtures = ways.map(|(name, nodes, fenced)| {
        let guarantees = runtime.block_on(redlock(nodes, fenced)).guarantees();
        Arc::new(OnNodes { name, nodes: Arc::clone(nodes), fenced, guarantees }) as Arc<dyn Fixture>
    });
    let conclusion = suite::run(fixtures);
    // `exit` runs no destructors, so the servers are ended here.
    drop((three, four, five));
    conclusion.exit();
}

async fn redlock(nodes: &RedisNodes, fenced: bool) -> Redlock {
    // The trials have leases of 100 ms, and a busy machine needs more than a tenth of that.
    let options = RedlockOptions::new().with_node_limit(Duration::from_millis(500));
    let redlock = Redlock::open(&nodes.urls(), Config::new(), options).await.expect("the nodes run");
    if fenced { redlock.fenced() } else { redlock }
}

struct OnNodes {
    name: &'static str,
    nodes: Arc<RedisNodes>,
    fenced: bool,
    guarantees: Guarantees,
}

#[async_trait]
impl Fixture for OnNodes {
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
        Arc::new(redlock(&self.nodes, self.fenced).await)
    }
}
