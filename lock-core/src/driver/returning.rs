use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::backoff::Backoff;
use super::debt::{Debt, release_once};
use super::{BoxFuture, Driver, Held, Orphan};
use crate::clock::sleep_until;
use crate::{Effect, ErrorKind, Moment, Release, Result};

/// Gives a lease back and says how that ended. Dropped midway, the keeper goes on with it.
pub(crate) async fn give_back(driver: &Arc<Driver>, held: Arc<Held>) -> Result<Release> {
    held.give_back();
    driver.unkeep(&held);
    held.owe();
    let call: BoxFuture<_> = Box::pin(release(Arc::clone(driver), Arc::clone(&held)));
    let answer = Returning { driver, held: &held, call: Some(call) }.await;
    if let Some(debt) = Debt::after_release(&held, &answer) {
        driver.owe(debt);
        driver.ensure_keeper();
    }
    answer
}

/// Sends the release until it is answered: after a failure for as long as the store is given while acquiring, and not beyond
/// the lease, but at least once more: a process that was stopped for longer than its lease finds its connections dead.
///
/// A repeat after a lost reply that finds the lock gone before its deadline means that the lost one was applied.
async fn release(driver: Arc<Driver>, held: Arc<Held>) -> Result<Release> {
    let deadline = held.deadline();
    let mut backoff = Backoff::of_outage();
    let mut give_up_at = None;
    let mut may_be_done = false;
    loop {
        let error = match release_once(&driver, &held).await {
            Ok(Release::NotHeld) if may_be_done && Moment::now() < deadline => return Ok(Release::Released),
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        may_be_done |= error.effect() == Effect::Unknown;
        let now = Moment::now();
        let is_first = give_up_at.is_none();
        let give_up_at =
            *give_up_at.get_or_insert_with(|| now.saturating_add(driver.options.unavailable_after).min(deadline));
        let next = now.saturating_add(backoff.pause());
        if error.kind() != ErrorKind::Unavailable || !is_first && give_up_at <= next {
            let effect = if may_be_done { Effect::Unknown } else { Effect::None };
            return Err(error.with_effect(effect));
        }
        sleep_until(next).await;
    }
}

struct Returning<'a> {
    driver: &'a Arc<Driver>,
    held: &'a Arc<Held>,
    call: Option<BoxFuture<Result<Release>>>,
}

impl Future for Returning<'_> {
    type Output = Result<Release>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.call.as_mut().expect("not polled after its end");
        let answer = std::task::ready!(call.as_mut().poll(context));
        self.call = None;
        Poll::Ready(answer)
    }
}

impl Drop for Returning<'_> {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let held = Arc::clone(self.held);
        let debt = Debt::of_lease(&held);
        let call = Box::pin(async move {
            let answer = call.await;
            Debt::after_release(&held, &answer)
        });
        self.driver.adopt(Orphan { call, debt });
    }
}
