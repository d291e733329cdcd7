use std::sync::Arc;
use std::time::Duration;

use super::backoff::Backoff;
use super::debt::Debt;
use super::queue::{Outage, Place};
use super::{BoxFuture, Driver, Held, Orphan};
use crate::clock::sleep_until;
use crate::{Claim, Effect, Error, ErrorKind, Grant, Lease, LockKey, Moment, Owner, Result, Stop, lease};

/// One acquisition: its claim, its place in the local queue, and the backend's call while one is in flight.
///
/// It is armed before the first request is sent: wherever it is dropped, the call in flight goes on in the keeper, and what
/// it brings is given back.
pub(crate) struct Acquisition {
    driver: Arc<Driver>,
    claim: Claim,
    /// The caller's own, if it passed one.
    owner: Option<Owner>,
    stop: Stop,
    call: Option<BoxFuture<Result<Option<Grant>>>>,
    place: Option<Place>,
    /// Whether a request of this claim may have been applied, or may still be.
    uncertain: bool,
}

/// Whose lock, what, and for how long at most a caller waits.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) owner: Option<Owner>,
    pub(crate) lease: Lease,
}

/// The limits of one wait.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// The caller's own limit, as a moment and as it was given.
    own: Option<(Moment, Duration)>,
    /// How long an outage is borne; only where the caller has set no limit.
    patience: Option<Duration>,
}

impl Acquisition {
    /// Waits for the lock: `within` the caller's limit, or for ever.
    pub(crate) async fn acquire(
        driver: &Arc<Driver>,
        wanted: &Wanted<'_>,
        within: Option<Duration>,
    ) -> Result<Arc<Held>> {
        check(driver, wanted, "acquire")?;
        let limits = Limits {
            // A limit beyond the clock's range is none.
            own: within.and_then(|within| Some((Moment::now().checked_add(within)?, within))),
            patience: within.is_none().then_some(driver.options.unavailable_after),
        };
        let place = match wanted.owner {
            None => wait_for_turn(driver, wanted.key, limits).await?,
            // Two tasks of one owner would wait for each other.
            Some(_) => driver.queue.beside(wanted.key),
        };
        Self::new(driver, wanted, place).wait(limits).await
    }

    /// Tries once. Answers without asking the store if the lock is held, or being given back, in this process.
    pub(crate) async fn try_acquire(driver: &Arc<Driver>, wanted: &Wanted<'_>) -> Result<Option<Arc<Held>>> {
        check(driver, wanted, "try_acquire")?;
        let place = match wanted.owner {
            None => match driver.queue.try_join(wanted.key) {
                Some(place) => place,
                None => return Ok(None),
            },
            Some(_) => driver.queue.beside(wanted.key),
        };
        let mut acquisition = Self::new(driver, wanted, place);
        let (driver, claim) = (Arc::clone(driver), acquisition.claim.clone());
        let call = async move { driver.backend.try_acquire(&claim).await };
        match acquisition.run(Box::pin(call)).await? {
            Some(grant) => acquisition.hand_out(grant).map(Some),
            None => Ok(None),
        }
    }

    fn new(driver: &Arc<Driver>, wanted: &Wanted<'_>, place: Place) -> Self {
        Self {
            driver: Arc::clone(driver),
            claim: claim(driver, wanted.key, wanted.owner, wanted.lease),
            owner: wanted.owner,
            stop: Stop::new(),
            call: None,
            place: Some(place),
            uncertain: false,
        }
    }

    async fn wait(mut self, limits: Limits) -> Result<Arc<Held>> {
        let mut backoff = Backoff::of_outage();
        // The first call may take what the backend allows it, also in an outage that others have met: the store may be back.
        let mut call_limits = Limits { patience: None, ..limits };
        loop {
            self.driver.check_open("acquire")?;
            let since = Moment::now();
            let error = match self.wait_once(call_limits).await {
                Ok(grant) => match self.hand_out(grant) {
                    Ok(held) => return Ok(held),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            // Only a store that may answer later is asked again, and only where no limit has been reached.
            if error.kind() != ErrorKind::Unavailable || self.call.is_some() {
                return Err(error);
            }
            call_limits = limits;
            // One that waited for its turn has been answered: its silence begins now.
            let since = if self.stop.is_waiting() { Moment::now() } else { since };
            self.stop = Stop::new();
            let outage = self.place().note_silence(since, &error);
            let pause = Moment::now().saturating_add(backoff.pause());
            tokio::select! {
                biased;
                () = self.driver.closing.raised() => {}
                error = limits.reached(&self.driver, &self.claim.key, Standing::Outage(&outage)) => return Err(error),
                () = sleep_until(pause) => {}
            }
        }
    }

    /// One call of the backend's wait, within the limits.
    async fn wait_once(&mut self, limits: Limits) -> Result<Grant> {
        let (driver, claim, stop) = (Arc::clone(&self.driver), self.claim.clone(), self.stop.clone());
        self.call = Some(Box::pin(async move { driver.backend.acquire(&claim, &stop).await }));
        let driver = Arc::clone(&self.driver);
        loop {
            let waiting = self.stop.is_waiting();
            let limited = limits.own.is_some() || limits.patience.is_some();
            let outage = if limited && !waiting { self.place().outage() } else { None };
            let standing = match &outage {
                _ if waiting => Standing::Contended,
                Some(outage) => Standing::Outage(outage),
                None => Standing::Unanswered,
            };
            let call = self.call.as_mut().expect("it is taken only when it has ended");
            tokio::select! {
                biased;
                answer = call => {
                    self.call = None;
                    return self.take(answer);
                }
                () = self.stop.waiting(), if !waiting => self.place().note_answer(),
                () = driver.closing.raised() => return Err(driver.closed_error("acquire")),
                error = limits.reached(&driver, &self.claim.key, standing) => return Err(error),
            }
        }
    }

    fn take(&mut self, answer: Result<Option<Grant>>) -> Result<Grant> {
        match answer {
            Ok(Some(grant)) => Ok(grant),
            Ok(None) => {
                let says = "the backend gave up a wait that nobody stopped; this is a defect of the backend";
                Err(self.driver.error(ErrorKind::Backend, "acquire", says).with_key(&self.claim.key))
            }
            Err(error) => {
                self.uncertain |= error.effect() == Effect::Unknown;
                Err(error)
            }
        }
    }

    /// Runs a call that is not a wait to its end.
    async fn run(&mut self, call: BoxFuture<Result<Option<Grant>>>) -> Result<Option<Grant>> {
        let answer = self.call.insert(call).await;
        self.call = None;
        if let Err(error) = &answer {
            self.uncertain |= error.effect() == Effect::Unknown;
        }
        answer
    }

    /// Makes a lease of a grant, unless its deadline has passed already (a transient failure) or these locks are shut down.
    fn hand_out(&mut self, grant: Grant) -> Result<Arc<Held>> {
        let ttl = self.claim.lease.ttl().min(grant.ttl);
        if self.driver.closing.is_raised() {
            self.refuse(grant);
            return Err(self.driver.closed_error("acquire"));
        }
        if lease::deadline(grant.sent_at, ttl) <= Moment::now() {
            self.refuse(grant);
            let says =
                format!("the grant arrived after its lease of {ttl:?} had ended; use a longer ttl or a nearer store");
            return Err(self.driver.error(ErrorKind::Unavailable, "acquire", says).with_key(&self.claim.key));
        }
        let mut place = self.place.take().expect("it is kept until the lease takes it");
        place.hold();
        let uncertain = std::mem::take(&mut self.uncertain);
        let held = Arc::new(Held::new(self.driver.new_id(), grant, &self.driver, place, uncertain));
        self.driver.keep(&held);
        Ok(held)
    }

    /// Gives a grant back that is not handed out. Its claim is spent: another takes over.
    fn refuse(&mut self, grant: Grant) {
        self.driver.owe(Debt::of_grant(grant, std::mem::take(&mut self.uncertain)));
        self.driver.ensure_keeper();
        self.claim = claim(&self.driver, &self.claim.key, self.owner, self.claim.lease);
    }

    fn place(&self) -> &Place {
        self.place.as_ref().expect("it is kept until the lease takes it")
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        match self.call.take() {
            Some(call) => {
                self.stop.fire();
                let debt = Debt::of_claim(self.claim.clone());
                let (driver, place) = (Arc::clone(&self.driver), self.place.take());
                let (claim, uncertain) = (self.claim.clone(), self.uncertain);
                let call = Box::pin(finish(driver, call, claim, uncertain, place));
                self.driver.adopt(Orphan { call, debt });
            }
            None if self.uncertain => self.driver.owe(Debt::of_claim(self.claim.clone())),
            None => {}
        }
    }
}

fn claim(driver: &Driver, key: &LockKey, owner: Option<Owner>, lease: Lease) -> Claim {
    let mut claim = match owner {
        Some(owner) => Claim::new(key.clone(), owner, lease),
        None => Claim::of_new_owner(key.clone(), lease),
    };
    claim.label.clone_from(&driver.options.label);
    claim
}

/// Runs a call whose caller has gone to its end, and gives back what it brings.
async fn finish(
    driver: Arc<Driver>,
    call: BoxFuture<Result<Option<Grant>>>,
    claim: Claim,
    uncertain: bool,
    place: Option<Place>,
) -> Option<Debt> {
    let answer = call.await;
    if let (Ok(_), Some(place)) = (&answer, &place) {
        place.note_answer();
    }
    let debt = match answer {
        Ok(Some(grant)) => Debt::of_grant(grant, uncertain),
        Err(error) if uncertain || error.effect() == Effect::Unknown => Debt::of_claim(claim),
        Ok(None) if uncertain => Debt::of_claim(claim),
        Ok(None) | Err(_) => return None,
    };
    let left = debt.pay(&driver).await;
    drop(place);
    left
}

/// Refuses what this backend cannot do before anything is queued or sent.
fn check(driver: &Arc<Driver>, wanted: &Wanted<'_>, operation: &'static str) -> Result<()> {
    driver.check_open(operation)?;
    driver.ensure_keeper();
    let guarantees = driver.backend.guarantees();
    lease::check_ttl(wanted.lease.ttl(), guarantees.min_ttl, driver.backend.name(), operation)
        .map_err(|error| error.with_key(wanted.key))?;
    if wanted.owner.is_some() && !guarantees.reentrant {
        let says = "this strategy is not re-entrant, so it takes no owner; leave `owner` out or use one that is";
        return Err(driver.error(ErrorKind::Unsupported, operation, says).with_key(wanted.key));
    }
    Ok(())
}

async fn wait_for_turn(driver: &Arc<Driver>, key: &LockKey, limits: Limits) -> Result<Place> {
    let mut queued = driver.queue.join(key);
    if let Some(place) = queued.place() {
        return Ok(place);
    }
    loop {
        driver.check_open("acquire")?;
        driver.ensure_keeper();
        let outage = queued.outage();
        let standing = outage.as_ref().map_or(Standing::Contended, Standing::Outage);
        // The limit first: a turn that comes with the end of an outage's patience would begin it anew.
        tokio::select! {
            biased;
            error = limits.reached(driver, key, standing) => return Err(error),
            () = queued.woken() => {}
        }
        if let Some(place) = queued.place() {
            return Ok(place);
        }
    }
}

/// What a waiter knows of its store when a limit is reached.
#[derive(Clone, Copy, Debug)]
enum Standing<'a> {
    /// Somebody else holds the lock.
    Contended,
    /// The store has not answered yet.
    Unanswered,
    /// The store cannot be reached.
    Outage(&'a Outage),
}

impl Limits {
    /// Waits until a limit is reached; the error says which, and whether it was contention or failure.
    async fn reached(self, driver: &Driver, key: &LockKey, standing: Standing<'_>) -> Error {
        let patience = match (self.patience, standing) {
            (Some(patience), Standing::Outage(outage)) => outage.since.checked_add(patience),
            _ => None,
        };
        let own = self.own.map(|(moment, _)| moment);
        match (own, patience) {
            (Some(moment), _) | (None, Some(moment)) => sleep_until(moment).await,
            (None, None) => std::future::pending().await,
        }
        self.error(driver, key, standing)
    }

    fn error(self, driver: &Driver, key: &LockKey, standing: Standing<'_>) -> Error {
        let limit = self.own.map_or(driver.options.unavailable_after, |(_, within)| within);
        let error = |kind, says: String| driver.error(kind, "acquire", says).with_key(key);
        match standing {
            Standing::Contended => error(
                ErrorKind::TimedOut,
                format!("somebody else held it for all of {limit:?}; try later or wait longer"),
            ),
            Standing::Unanswered => {
                let says = format!("the store did not answer within {limit:?}; check that it is up, or wait longer");
                error(ErrorKind::Unavailable, says).with_effect(Effect::Unknown)
            }
            Standing::Outage(Outage { last_error, .. }) => {
                let says = format!("the store could not be reached for {limit:?} ({last_error}); check that it is up");
                error(ErrorKind::Unavailable, says).with_effect(last_error.effect()).with_source(last_error.clone())
            }
        }
    }
}
