//! The suite, on a real server, as each strategy's guarantees choose the trials: what it claims must hold, and what it does
//! not claim must break.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{Backend, Guarantees};
use lock_naive::{BlindDelete, GetSet, SetnxExpire};
use lock_testkit::RedisServer;
use lock_testkit::suite::{self, Clock, Fixture};

fn main() {
    let server = Arc::new(RedisServer::start().expect("redis-server starts"));
    let fixtures = [Strategy::SetnxExpire, Strategy::GetSet, Strategy::BlindDelete]
        .map(|strategy| Arc::new(OnRedis::new(strategy, Arc::clone(&server))) as Arc<dyn Fixture>);
    let conclusion = suite::run(fixtures);
    // `exit` runs no destructors, so the server is ended here.
    drop(server);
    conclusion.exit();
}

#[derive(Clone, Copy)]
enum Strategy {
    SetnxExpire,
    GetSet,
    BlindDelete,
}

impl Strategy {
    async fn connect(self, url: &str) -> lock_core::Result<Arc<dyn Backend>> {
        Ok(match self {
            Self::SetnxExpire => Arc::new(SetnxExpire::connect(url).await?),
            Self::GetSet => Arc::new(GetSet::connect(url).await?),
            Self::BlindDelete => Arc::new(BlindDelete::connect(url).await?),
        })
    }
}

struct OnRedis {
    strategy: Strategy,
    server: Arc<RedisServer>,
    name: String,
    guarantees: Guarantees,
}

impl OnRedis {
    fn new(strategy: Strategy, server: Arc<RedisServer>) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let backend = runtime.block_on(strategy.connect(&server.url())).expect("a server that has just started");
        Self { strategy, server, name: backend.name().to_owned(), guarantees: backend.guarantees() }
    }
}

#[async_trait]
impl Fixture for OnRedis {
    fn name(&self) -> &str {
        &self.name
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    fn clock(&self) -> Clock {
        Clock::Real
    }

    async fn connect(&self) -> Arc<dyn Backend> {
        self.strategy.connect(&self.server.url()).await.expect("the server runs")
    }
}
