//! One process: the real `Locks` on a runtime with a clock of its own, and users who take the lock and hold it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt;
use lock_testkit::simulation::{Clock, MILLI, Nanos, Report, nanos};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep, sleep_until, timeout};

use super::Flaw;
use super::link::{Letter, Link, Outbox};
use super::plan::Plan;
use crate::clock::suspend;
use crate::{Lease, LockGuard, Locks, Moment, Options};

/// Everything in it happens at whole milliseconds of its own clock, because tokio's timers do.
pub(super) struct Actor {
    runtime: Runtime,
    outbox: Arc<Outbox>,
    diary: Arc<Diary>,
    users: Vec<JoinHandle<()>>,
    /// Kept to the end, and with them the keeper.
    locks: Locks,
    clock: Clock,
    start: Instant,
    /// By how much the clock that counts suspend is ahead of the timers.
    suspended: Duration,
    /// What the clock that counts suspend reads.
    reading: Nanos,
}

impl Actor {
    pub(super) fn new(plan: &Plan, number: usize, rng: &mut Rng, flaw: Option<Flaw>, traced: bool) -> Self {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().expect("it needs nothing of the system");
        let _entered = runtime.enter();
        suspend::pretend(Duration::ZERO);
        let outbox = Arc::<Outbox>::default();
        let options = Options::new().with_unavailable_after(plan.ttl * 2);
        let locks = Locks::with_options(Arc::new(Link::new(&outbox, plan.limit, flaw)), options);
        let diary = Arc::new(Diary { origin: Moment::now(), traced, pages: Mutex::default() });
        let clock = Clock::new(plan.actors[number].ppm);
        let users = (0..plan.actors[number].users).map(|_| {
            let (locks, diary) = (locks.clone(), Arc::clone(&diary));
            let user = User { locks, diary, rng: rng.fork(), ttl: plan.ttl, until: clock.reading(plan.calm) };
            runtime.spawn(user.live())
        });
        let (users, start) = (users.collect(), Instant::now());
        drop(_entered);
        Self { runtime, outbox, diary, users, locks, clock, start, suspended: Duration::ZERO, reading: 0 }
    }

    /// The lab's time that it has got to.
    pub(super) fn now(&self) -> Nanos {
        self.clock.when(self.reading)
    }

    /// Runs it until it sends something, or the lab's time is `until`; takes what it has sent.
    pub(super) fn run(&mut self, until: Nanos) -> Vec<Letter> {
        let until = self.timer(self.reading_at(until).max(self.reading + MILLI));
        suspend::pretend(self.suspended);
        let now = self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.outbox.sent.notified() => {}
                () = sleep_until(until) => {}
            }
            Instant::now()
        });
        self.note_time(now);
        self.outbox.take()
    }

    /// Stops its process for `during` of the lab's time. All timers that end meanwhile are late.
    pub(super) fn stop(&mut self, during: Nanos) {
        let until = self.reading_at(self.now() + during);
        let jump = Duration::from_nanos((until - self.reading).unsigned_abs());
        let now = self.runtime.block_on(async {
            // Only the clock moves: replies that came meanwhile are seen before the timers.
            let _moved = advance(jump).now_or_never();
            Instant::now()
        });
        self.note_time(now);
    }

    /// Suspends its machine for `during` of the lab's time.
    pub(super) fn suspend(&mut self, during: Nanos) {
        let until = self.reading_at(self.now() + during);
        self.suspended += Duration::from_nanos((until - self.reading).unsigned_abs());
        self.reading = until;
    }

    /// Sets its clock forward.
    pub(super) fn jump(&mut self, by: Nanos) {
        let by = by / MILLI * MILLI;
        self.clock.step(self.now(), by);
        self.suspended += Duration::from_nanos(by.unsigned_abs());
        self.reading += by;
    }

    /// What its users have written down since the last look, in the lab's time.
    pub(super) fn notes(&self) -> Vec<(Nanos, String)> {
        let notes = std::mem::take(&mut self.diary.pages().notes);
        notes.into_iter().map(|(at, note)| (self.clock.when(at), note)).collect()
    }

    /// Ends it: what its users have held, in the lab's time, and what is left that should not be.
    pub(super) fn end(self, report: &mut Report) -> Vec<(Nanos, Nanos)> {
        for user in self.users {
            match user.now_or_never() {
                None => report.faults.push("a user still waits or holds at the end".to_owned()),
                Some(Err(panic)) => report.faults.push(format!("a user panicked: {panic}")),
                Some(Ok(())) => {}
            }
        }
        if !self.locks.handle.driver.is_idle() {
            report.faults.push("something is still held, wanted or owed at the end".to_owned());
        }
        let pages = self.diary.pages();
        let lab = |&(from, to): &(Nanos, Option<Nanos>)| (self.clock.when(from), self.clock.when(to.unwrap_or(from)));
        pages.holds.iter().map(lab).collect()
    }

    /// What the clock reads at the first of its milliseconds that is not before the lab's time `at`.
    fn reading_at(&self, at: Nanos) -> Nanos {
        -(-self.clock.reading(at)).div_euclid(MILLI) * MILLI
    }

    /// When the timers go off that are due at `reading`.
    fn timer(&self, reading: Nanos) -> Instant {
        self.start + Duration::from_nanos(reading.unsigned_abs()) - self.suspended
    }

    fn note_time(&mut self, now: Instant) {
        self.reading = nanos(now - self.start + self.suspended);
    }
}

/// What the users of one actor write down, by their own clock.
#[derive(Debug)]
struct Diary {
    origin: Moment,
    traced: bool,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    /// From when until when each acted under the lock. One that goes on has no end yet.
    holds: Vec<(Nanos, Option<Nanos>)>,
    notes: Vec<(Nanos, String)>,
}

impl Diary {
    fn reading(&self, moment: Moment) -> Nanos {
        nanos(moment.saturating_duration_since(self.origin))
    }

    fn now(&self) -> Nanos {
        self.reading(Moment::now())
    }

    fn note(&self, note: impl FnOnce() -> String) {
        if self.traced {
            let now = self.now();
            self.pages().notes.push((now, note()));
        }
    }

    fn begin(&self, guard: &LockGuard) -> usize {
        self.note(|| format!("holds, until {}", self.show(guard.deadline())));
        let now = self.now();
        let mut pages = self.pages();
        pages.holds.push((now, None));
        pages.holds.len() - 1
    }

    /// It acts no more from now on, and has not since its deadline.
    fn end(&self, hold: usize, guard: &LockGuard) {
        self.note(|| format!("ends, its deadline was {}", self.show(guard.deadline())));
        self.pages().holds[hold].1 = Some(self.now().min(self.reading(guard.deadline())));
    }

    fn show(&self, moment: Moment) -> String {
        format!("{:.3} ms of its own clock", self.reading(moment) as f64 / MILLI as f64)
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who wants the lock, again and again.
struct User {
    locks: Locks,
    diary: Arc<Diary>,
    rng: Rng,
    ttl: Duration,
    /// By the actor's clock.
    until: Nanos,
}

impl User {
    async fn live(mut self) {
        while self.diary.now() < self.until {
            sleep(self.up_to(self.ttl / 2)).await;
            if let Some(guard) = self.acquire().await {
                self.hold(guard).await;
            }
        }
    }

    async fn acquire(&mut self) -> Option<LockGuard> {
        let lease = if self.rng.u8(..4) == 0 { Lease::fixed(self.ttl) } else { Lease::renewed(self.ttl) };
        let lock = self.locks.lock("k").expect("it is a key").lease(lease);
        let limit = self.up_to(self.ttl * 3);
        let answer = match self.rng.u8(..8) {
            0 => lock.try_acquire().await.transpose(),
            1 => Some(lock.acquire_within(limit).await),
            // Dropped midway.
            2 => timeout(limit, lock.acquire()).await.ok(),
            _ => Some(lock.acquire().await),
        };
        match answer? {
            Ok(guard) => Some(guard),
            Err(error) => {
                self.diary.note(|| format!("fails: {error}"));
                None
            }
        }
    }

    /// Acts under the lock until the work is done, the lock is lost, or it is time to end.
    async fn hold(&mut self, guard: LockGuard) {
        let hold = self.diary.begin(&guard);
        if self.rng.u8(..4) == 0 {
            sleep(self.up_to(self.ttl).min(self.left())).await;
            let ttl = self.ttl / 2 + self.up_to(self.ttl * 2);
            let answer = guard.extend(ttl).await;
            self.diary.note(|| format!("extends to {ttl:?}: {answer:?}"));
        }
        let work = self.up_to(self.ttl * 3).min(self.left());
        tokio::select! {
            biased;
            reason = guard.lost() => self.diary.note(|| format!("loses it: {reason}")),
            () = sleep(work) => {}
        }
        self.diary.end(hold, &guard);
        if self.rng.bool() {
            drop(guard);
        } else {
            let answer = guard.release().await;
            self.diary.note(|| format!("has released: {answer:?}"));
        }
    }

    fn left(&self) -> Duration {
        Duration::from_nanos((self.until - self.diary.now()).max(0).unsigned_abs())
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.rng.f64())
    }
}
