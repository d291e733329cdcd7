//! Mutual exclusion: many contenders, one counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lock_core::{Backend, Claim, Release, Result, Stop};
use tokio::task::JoinSet;

use super::Fixture;
use super::ground::{assert_free, claim, key, long};

const CONTENDERS: usize = 8;
const ROUNDS: u64 = 6;

/// Four clients, two tasks each. The counter is read and written in two steps with a pause in between, so two holders at
/// once would lose an update.
pub(super) async fn no_update_is_lost(fixture: &dyn Fixture) -> Result<()> {
    let key = key("counter");
    let counter = Arc::new(Counter::default());
    let mut clients = Vec::new();
    for _ in 0..CONTENDERS / 2 {
        clients.push(fixture.connect().await);
    }
    let mut contenders = JoinSet::new();
    for contender in 0..CONTENDERS {
        let claims: Vec<_> = (0..ROUNDS).map(|_| claim(fixture, &key, long(fixture))).collect();
        contenders.spawn(contend(Arc::clone(&clients[contender / 2]), claims, Arc::clone(&counter)));
    }
    while let Some(ended) = contenders.join_next().await {
        ended.expect("a contender does not panic")?;
    }
    assert_eq!(counter.value(), ROUNDS * CONTENDERS as u64);
    assert_free(fixture, &*clients[0], &key).await
}

async fn contend(client: Arc<dyn Backend>, claims: Vec<Claim>, counter: Arc<Counter>) -> Result<()> {
    for claim in claims {
        let grant = client.acquire(&claim, &Stop::new()).await?.expect("nobody has fired the stop");
        counter.add_one().await;
        assert_eq!(client.release(&grant).await?, Release::Released);
    }
    Ok(())
}

/// A resource that needs a lock, and notices if it has none.
#[derive(Debug, Default)]
pub(super) struct Counter {
    value: AtomicU64,
    entered: AtomicBool,
}

impl Counter {
    pub(super) fn value(&self) -> u64 {
        self.value.load(Ordering::SeqCst)
    }

    pub(super) async fn add_one(&self) {
        assert!(!self.entered.swap(true, Ordering::SeqCst), "two holders at once");
        let value = self.value();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        self.value.store(value + 1, Ordering::SeqCst);
        self.entered.store(false, Ordering::SeqCst);
    }
}
