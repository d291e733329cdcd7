//! The conformance suite: one named trial for each line of the contract, run against a real store.
//!
//! A backend writes a [`Fixture`] and a test without a harness:
//!
//! ```toml
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use lock_testkit::suite::{self, Fixture};
//! # fn fixtures() -> Vec<Arc<dyn Fixture>> { Vec::new() }
//! fn main() {
//!     suite::run(fixtures()).exit();
//! }
//! ```
//!
//! Which trials are listed follows from the [`Guarantees`]: what a backend claims must hold, and where it claims no check,
//! the damage must show. A trial that does not apply is not listed, and none is ever skipped. Every trial uses keys of its
//! own, so many may run at once on one store.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use lock_core::{Backend, Exclusion, Expiry, Fencing, Guarantees, OwnerCheck, Result, WakeUp};

mod abandon;
mod acquire;
mod contend;
mod driver;
mod fencing;
mod ground;
mod inspect;
mod keys;
mod lease;
mod release;
mod renew;
mod wait;

/// A store with a backend on it, for the trials to run against.
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// What stands before the trials' names, such as `redis-token over a pool`.
    fn name(&self) -> &str;

    /// What the backend promises, as it is configured here.
    fn guarantees(&self) -> Guarantees;

    /// The clock that the trials run by.
    fn clock(&self) -> Clock;

    /// A new client: an object with connections of its own, on the same store as every other of this fixture.
    ///
    /// It is called inside the runtime of the trial, which ends with the trial. A store that cannot be reached is a failed
    /// trial, never a skipped one: panic.
    async fn connect(&self) -> Arc<dyn Backend>;
}

/// The clock that a trial runs by, and so its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "time is real or it is not")]
pub enum Clock {
    /// A runtime with two workers.
    Real,
    /// A runtime of one thread whose time stands still while there is work, and jumps when there is none. Only for a
    /// backend without I/O.
    Virtual,
}

/// Runs the suite on every fixture, as the command line says, and tells how it went.
///
/// The trials mostly wait, so sixteen run at once unless `--test-threads` says otherwise.
pub fn run(fixtures: impl IntoIterator<Item = Arc<dyn Fixture>>) -> Conclusion {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(16);
    let trials = fixtures.into_iter().flat_map(|fixture| trials(&fixture)).collect();
    libtest_mimic::run(&arguments, trials)
}

/// The trials that apply to a fixture, each named `<fixture>::<trial>`.
#[must_use]
pub fn trials(fixture: &Arc<dyn Fixture>) -> Vec<Trial> {
    let guarantees = fixture.guarantees();
    let applying = RULES.iter().filter(|(_, applies, _)| applies(&guarantees));
    let trial = |(name, _, trial): &Rule| {
        let (fixture, trial) = (Arc::clone(fixture), *trial);
        Trial::test(format!("{}::{name}", fixture.name()), move || run_one(&*fixture, trial))
    };
    applying.map(trial).collect()
}

/// Runs the trial of this name alone, for a test of the suite itself: a broken backend must fail it.
///
/// # Errors
///
/// What the trial found.
///
/// # Panics
///
/// If no trial of this name applies to the fixture.
pub fn try_one(fixture: &dyn Fixture, name: &str) -> Result<(), Failed> {
    let guarantees = fixture.guarantees();
    let named = RULES.iter().find(|(rule, applies, _)| *rule == name && applies(&guarantees));
    let (_, _, trial) = named.unwrap_or_else(|| panic!("no trial `{name}` applies to {}", fixture.name()));
    catch_unwind(AssertUnwindSafe(|| run_one(fixture, *trial))).unwrap_or_else(|panic| {
        let says = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(says.unwrap_or("it panicked").into())
    })
}

fn run_one(fixture: &dyn Fixture, trial: TrialFn) -> Result<(), Failed> {
    let mut runtime = match fixture.clock() {
        Clock::Real => tokio::runtime::Builder::new_multi_thread(),
        Clock::Virtual => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = runtime.worker_threads(2).start_paused(fixture.clock() == Clock::Virtual).enable_all().build()?;
    let limit = Duration::from_secs(120);
    match runtime.block_on(async { tokio::time::timeout(limit, trial(fixture)).await }) {
        Ok(outcome) => Ok(outcome?),
        Err(_elapsed) => Err(format!("it has not ended within {limit:?}").into()),
    }
}

/// A name, the backends that it is for, and what is tried.
type Rule = (&'static str, fn(&Guarantees) -> bool, TrialFn);
type TrialFn = for<'a> fn(&'a dyn Fixture) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

#[rustfmt::skip]
const RULES: &[Rule] = &[
    // Backend::try_acquire
    ("acquire::a_free_lock_is_granted_and_a_held_one_is_not", always, |f| Box::pin(acquire::free_is_granted(f))),
    ("acquire::the_grant_carries_the_ttl_that_the_store_gave_and_sent_at", entry, |f| Box::pin(acquire::grant_is_honest(f))),
    ("acquire::the_lock_is_taken_until_the_deadline_and_no_longer", entry, |f| Box::pin(acquire::taken_until_the_deadline(f))),
    ("acquire::the_same_claim_again_finds_its_own_grant_and_counts_once", idempotent, |f| Box::pin(acquire::same_claim_counts_once(f))),
    ("acquire::the_same_claim_again_restarts_its_ttl", |g| idempotent(g) && entry(g), |f| Box::pin(acquire::same_claim_restarts_its_ttl(f))),
    ("acquire::the_same_claim_again_is_locked_out", |g| !idempotent(g), |f| Box::pin(acquire::same_claim_is_locked_out(f))),
    ("acquire::the_same_owner_under_another_claim_is_granted_again", reentrant, |f| Box::pin(acquire::same_owner_is_granted_again(f))),
    ("acquire::the_same_owner_under_another_claim_is_refused", |g| !reentrant(g), |f| Box::pin(acquire::same_owner_is_refused(f))),
    ("acquire::a_failed_attempt_changes_nothing", entry, |f| Box::pin(acquire::failed_attempt_changes_nothing(f))),
    ("acquire::a_ttl_that_the_store_cannot_keep_is_refused", always, |f| Box::pin(acquire::ttl_out_of_range_is_refused(f))),
    ("acquire::the_shortest_ttl_is_granted", entry, |f| Box::pin(acquire::the_minimum_is_granted(f))),

    // Backend::acquire
    ("wait::a_free_lock_is_granted_at_once", always, |f| Box::pin(wait::free_is_granted_at_once(f))),
    ("wait::none_only_after_stop_and_then_the_place_is_given_up", always, |f| Box::pin(wait::stop_gives_up_the_place(f))),
    ("wait::a_stop_before_the_wait_ends_it", always, |f| Box::pin(wait::stop_before_the_wait_ends_it(f))),
    ("wait::a_grant_on_its_way_when_stop_comes_is_returned", always, |f| Box::pin(wait::a_grant_on_its_way_is_returned(f))),
    ("wait::the_end_of_the_holders_lease_is_noticed_without_any_message", entry, |f| Box::pin(wait::end_of_the_lease_is_noticed(f))),
    ("wait::waiting_is_reported_once_the_store_has_said_busy", always, |f| Box::pin(wait::waiting_is_reported(f))),
    ("wait::every_waiter_of_a_client_is_served", always, |f| Box::pin(wait::every_waiter_is_served(f))),
    ("wait::waiters_are_served_in_the_order_in_which_they_came", fair, |f| Box::pin(wait::waiters_are_served_in_order(f))),
    ("wait::a_try_does_not_overtake_a_waiter", fair, |f| Box::pin(wait::a_try_does_not_overtake(f))),
    ("wait::a_release_is_told_to_a_waiter", told, |f| Box::pin(wait::a_release_is_told(f))),

    // Backend::renew
    ("renew::it_restarts_the_ttl_from_its_own_send", entry, |f| Box::pin(renew::it_restarts_the_ttl(f))),
    ("renew::an_expired_grant_is_lost_and_never_made_again", |g| checked_renewal(g) && entry(g), |f| Box::pin(renew::expired_is_lost_and_not_made_again(f))),
    ("renew::a_lock_that_another_has_taken_is_lost_and_left_alone", |g| checked_renewal(g) && entry(g), |f| Box::pin(renew::anothers_lock_is_left_alone(f))),
    ("renew::unchecked_it_prolongs_the_lock_of_another", |g| !checked_renewal(g) && entry(g), |f| Box::pin(renew::anothers_lock_is_prolonged(f))),
    ("renew::the_new_ttl_replaces_the_old_one_and_is_never_added_to_it", entry, |f| Box::pin(renew::ttl_replaces_and_is_never_added(f))),
    ("renew::a_longer_ttl_is_kept", entry, |f| Box::pin(renew::a_longer_ttl_is_kept(f))),
    ("renew::one_failed_renewal_does_not_fail_the_others", |g| checked_renewal(g) && entry(g), |f| Box::pin(renew::one_lost_does_not_fail_the_others(f))),
    ("renew::a_large_batch_is_answered_in_order", checked_renewal, |f| Box::pin(renew::a_large_batch_is_answered_in_order(f))),
    ("renew::an_empty_batch_has_no_answers", always, |f| Box::pin(renew::an_empty_batch_has_no_answers(f))),
    ("renew::a_ttl_that_the_store_cannot_keep_is_refused", always, |f| Box::pin(renew::a_ttl_of_zero_is_refused(f))),

    // Backend::release
    ("release::it_frees_its_own_lock_and_wakes_a_waiter", always, |f| Box::pin(wait::a_release_lets_the_waiter_in(f))),
    ("release::a_lock_that_another_has_taken_is_left_alone", |g| checked_release(g) && entry(g), |f| Box::pin(release::anothers_lock_is_left_alone(f))),
    ("release::unchecked_it_frees_the_lock_of_another", |g| !checked_release(g) && entry(g), |f| Box::pin(release::anothers_lock_is_freed(f))),
    ("release::a_second_one_answers_not_held", always, |f| Box::pin(release::the_second_is_not_held(f))),
    ("release::a_second_one_changes_nothing", checked_release, |f| Box::pin(release::the_second_leaves_the_next_holder_alone(f))),
    ("release::one_ends_one_hold_of_a_reentrant_lock", reentrant, |f| Box::pin(release::one_ends_one_hold(f))),
    ("release::one_of_an_inner_hold_does_not_touch_the_lease", |g| reentrant(g) && entry(g), |f| Box::pin(release::an_inner_one_does_not_touch_the_lease(f))),

    // Backend::abandon
    ("abandon::what_the_claim_holds_is_free_afterwards", always, |f| Box::pin(abandon::what_the_claim_holds_is_free(f))),
    ("abandon::it_needs_only_the_claim", always, |f| Box::pin(abandon::it_needs_only_the_claim(f))),
    ("abandon::what_others_hold_is_left_alone", always, |f| Box::pin(abandon::what_others_hold_is_left_alone(f))),
    ("abandon::a_claim_that_left_nothing_is_no_error", always, |f| Box::pin(abandon::a_claim_that_left_nothing_is_no_error(f))),
    ("abandon::it_may_be_repeated", always, |f| Box::pin(abandon::it_may_be_repeated(f))),
    ("abandon::another_claim_of_the_owner_stands", reentrant, |f| Box::pin(abandon::the_owners_other_claim_stands(f))),
    ("abandon::a_waiter_gets_what_was_abandoned", always, |f| Box::pin(abandon::a_waiter_gets_what_was_abandoned(f))),

    // Backend::inspect, list, force_release, close
    ("inspect::it_says_whether_the_lock_is_held_and_what_the_store_knows", always, |f| Box::pin(inspect::it_says_what_the_store_knows(f))),
    ("inspect::a_lease_that_has_ended_is_seen_as_free", entry, |f| Box::pin(inspect::it_says_when_a_lease_has_ended(f))),
    ("inspect::it_counts_waiters_or_says_nothing_of_them", always, |f| Box::pin(inspect::it_counts_waiters_or_does_not(f))),
    ("list::every_held_key_that_begins_with_the_prefix_byte_for_byte_is_listed_once", always, |f| Box::pin(inspect::list_is_exact(f))),
    ("list::it_is_complete", always, |f| Box::pin(inspect::list_is_complete(f))),
    ("force_release::the_lock_is_free_afterwards_and_a_free_lock_answers_not_held", always, |f| Box::pin(inspect::force_frees_whoever_holds(f))),
    ("force_release::the_former_holders_renewal_answers_lost", checked_renewal, |f| Box::pin(inspect::force_is_found_out_at_the_next_renewal(f))),
    ("force_release::waiters_are_woken", always, |f| Box::pin(inspect::force_wakes_a_waiter(f))),
    ("force_release::it_ends_every_hold_of_a_reentrant_lock", reentrant, |f| Box::pin(inspect::force_ends_every_hold(f))),
    ("close::it_ends_in_bounded_time_and_leaves_other_clients_alone", always, |f| Box::pin(inspect::close_ends(f))),
    ("close::what_its_session_kept_goes_to_the_next_in_line", session, |f| Box::pin(inspect::close_frees_what_the_session_kept(f))),

    // Exclusion, keys and tokens
    ("exclusion::eight_contenders_lose_no_update", excludes, |f| Box::pin(contend::no_update_is_lost(f))),
    ("key::names_are_distinct_locks", always, |f| Box::pin(keys::names_are_distinct_locks(f))),
    ("fencing::tokens_strictly_grow_over_hand_overs", fenced, |f| Box::pin(fencing::tokens_grow(f))),
    ("fencing::a_token_stays_the_same_while_its_owner_holds", fenced, |f| Box::pin(fencing::token_stays_on_re_entry(f))),
    ("fencing::without_a_source_there_is_no_token", |g| !fenced(g), |f| Box::pin(fencing::there_is_no_token(f))),

    // The rules of a lease, through Locks
    ("lease::the_deadline_is_the_send_plus_the_ttl_less_the_drift", entry, |f| Box::pin(lease::deadline_counts_from_the_send(f))),
    ("lease::a_fixed_one_ends_by_itself", always, |f| Box::pin(lease::a_fixed_lease_ends_by_itself(f))),
    ("lease::a_renewed_one_outlives_several_ttls", always, |f| Box::pin(lease::a_renewed_lease_outlives_several_ttls(f))),
    ("lease::extending_replaces_it_and_never_adds", entry, |f| Box::pin(lease::extending_replaces_the_lease(f))),
    ("lease::an_extended_one_is_longer", entry, |f| Box::pin(lease::an_extended_lease_is_longer(f))),
    ("lease::a_shortened_one_ends_early_and_is_given_back", entry, |f| Box::pin(lease::a_shortened_lease_ends_early(f))),
    ("lease::extending_a_lost_one_does_not_revive_it", always, |f| Box::pin(lease::extending_a_lost_lock_does_not_revive_it(f))),
    ("lease::a_ttl_out_of_range_is_refused_and_changes_nothing", always, |f| Box::pin(lease::a_ttl_out_of_range_changes_nothing(f))),
    ("lease::an_old_guard_leaves_the_new_holder_alone", |g| checked_release(g) && entry(g), |f| Box::pin(lease::an_old_guard_leaves_the_new_holder_alone(f))),
    ("lease::unchecked_an_old_guard_frees_the_new_holder", |g| !checked_release(g) && entry(g), |f| Box::pin(lease::an_old_guard_frees_the_new_holder(f))),
    ("lease::a_forced_release_is_a_loss", checked_renewal, |f| Box::pin(lease::force_is_a_loss(f))),
    ("lease::one_loss_does_not_end_the_others", checked_renewal, |f| Box::pin(lease::one_loss_does_not_end_the_others(f))),
    ("lease::a_maximum_hold_ends_the_lock", always, |f| Box::pin(lease::a_maximum_hold_ends_the_lock(f))),
    ("lease::run_gives_back_and_is_cancelled_by_loss", always, |f| Box::pin(lease::run_gives_back(f))),
    ("lease::a_guard_carries_a_growing_token", fenced, |f| Box::pin(lease::a_guard_carries_the_token(f))),
    ("lease::a_label_can_be_seen_or_is_left_out", always, |f| Box::pin(lease::a_label_can_be_seen(f))),

    // Waiting and giving back, through Locks
    ("locks::eight_contenders_lose_no_update", excludes, |f| Box::pin(driver::no_update_is_lost(f))),
    ("locks::a_try_does_not_wait", always, |f| Box::pin(driver::a_try_does_not_wait(f))),
    ("locks::a_limit_ends_the_wait_with_timed_out", always, |f| Box::pin(driver::a_limit_ends_the_wait(f))),
    ("locks::contention_is_not_an_outage", always, |f| Box::pin(driver::contention_is_not_an_outage(f))),
    ("locks::a_dropped_wait_leaves_nothing", always, |f| Box::pin(driver::a_dropped_wait_leaves_nothing(f))),
    ("locks::a_dropped_guard_frees", always, |f| Box::pin(driver::a_dropped_guard_frees(f))),
    ("locks::shutdown_gives_everything_back", always, |f| Box::pin(driver::shutdown_gives_everything_back(f))),
    ("locks::an_owner_enters_again_and_each_guard_counts", reentrant, |f| Box::pin(driver::an_owner_re_enters(f))),
    ("locks::an_owner_is_unsupported", |g| !reentrant(g), |f| Box::pin(driver::an_owner_is_unsupported(f))),
    ("locks::a_vanished_holder_does_not_block", entry, |f| Box::pin(driver::a_vanished_holder_does_not_block(f))),
    ("locks::no_renewal_follows_a_release", entry, |f| Box::pin(driver::no_renewal_follows_a_release(f))),
];

fn always(_: &Guarantees) -> bool {
    true
}

/// An entry that nobody renews ends by its own ttl.
fn entry(guarantees: &Guarantees) -> bool {
    guarantees.expiry == Expiry::Entry
}

/// An entry ends with the session that keeps it.
fn session(guarantees: &Guarantees) -> bool {
    guarantees.expiry == Expiry::Session
}

fn fair(guarantees: &Guarantees) -> bool {
    guarantees.fair
}

fn idempotent(guarantees: &Guarantees) -> bool {
    guarantees.idempotent_acquire
}

fn reentrant(guarantees: &Guarantees) -> bool {
    guarantees.reentrant
}

fn fenced(guarantees: &Guarantees) -> bool {
    guarantees.fencing != Fencing::None
}

/// It compares before it acts; whether in one step or two shows only in a race, which is a scenario and not a trial.
fn checked_release(guarantees: &Guarantees) -> bool {
    guarantees.release_check != OwnerCheck::None
}

fn checked_renewal(guarantees: &Guarantees) -> bool {
    guarantees.renew_check != OwnerCheck::None
}

fn told(guarantees: &Guarantees) -> bool {
    guarantees.wake_up != WakeUp::Poll
}

fn excludes(guarantees: &Guarantees) -> bool {
    guarantees.exclusion != Exclusion::BestEffort
}
