//! The whole suite, by the real clock and by tokio's paused one.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{Backend, Guarantees};
use lock_memory::Memory;
use lock_testkit::suite::{self, Clock, Fixture};

struct Table {
    name: &'static str,
    clock: Clock,
    memory: Memory,
}

#[async_trait]
impl Fixture for Table {
    fn name(&self) -> &str {
        self.name
    }

    fn guarantees(&self) -> Guarantees {
        self.memory.guarantees()
    }

    fn clock(&self) -> Clock {
        self.clock
    }

    async fn connect(&self) -> Arc<dyn Backend> {
        Arc::new(self.memory.clone())
    }
}

fn main() {
    let table = |name, clock| -> Arc<dyn Fixture> { Arc::new(Table { name, clock, memory: Memory::new() }) };
    suite::run([table("memory", Clock::Real), table("memory in virtual time", Clock::Virtual)]).exit();
}
