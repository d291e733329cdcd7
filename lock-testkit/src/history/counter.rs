use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Actor;

/// A counter that is only right if a lock guards it: an increment reads, lets others run, and writes.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use lock_testkit::history::GuardedCounter;
///
/// let counter = GuardedCounter::new("counter");
/// // Nobody holds a lock here.
/// tokio::join!(counter.increment(), counter.increment());
/// assert_eq!((counter.value(), counter.lost_updates()), (1, 1));
/// # }
/// ```
#[derive(Debug)]
pub struct GuardedCounter {
    name: Arc<str>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    value: u64,
    increments: u64,
}

impl GuardedCounter {
    /// A counter at zero. The name stands in the events as the resource.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), state: Mutex::default() }
    }

    /// Adds one, in two steps.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing was added.
    pub async fn increment(&self) {
        let value = self.lock().value;
        tokio::task::yield_now().await;
        self.lock().write(value + 1);
    }

    /// Adds one, in two steps that `actor` writes down.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing was added.
    pub async fn increment_as(&self, actor: &Actor) {
        // The event is written under the lock, so that the history has the order of the steps.
        let value = {
            let state = self.lock();
            actor.read(Arc::clone(&self.name), state.value);
            state.value
        };
        tokio::task::yield_now().await;
        let mut state = self.lock();
        actor.wrote(Arc::clone(&self.name), value + 1);
        state.write(value + 1);
    }

    /// What it says.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.lock().value
    }

    /// How many increments have ended.
    #[must_use]
    pub fn increments(&self) -> u64 {
        self.lock().increments
    }

    /// How many increments are missing from the value.
    #[must_use]
    pub fn lost_updates(&self) -> u64 {
        let state = self.lock();
        state.increments - state.value
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    const fn write(&mut self, value: u64) {
        self.value = value;
        self.increments += 1;
    }
}
