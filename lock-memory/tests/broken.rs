//! The suite is only as good as what it catches: each flaw here is one that a published lock library has had, put in front
//! of `Memory`, and the trials named beside it must fail. Without a flaw they must pass.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{
    Backend, Claim, ErrorKind, Exclusion, Fencing, FencingToken, Grant, Guarantees, Inspection, Lease, LockKey, Moment,
    Owner, OwnerCheck, Release, Renew, Renewal, Result, Stop, Undone,
};
use lock_memory::Memory;
use lock_testkit::suite::{self, Clock, Fixture};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    GrantsToEverybody,
    CountsARepeatTwice,
    RefusesARepeat,
    TakesAnyTtl,
    LivesHalfAsLong,
    NeverExpires,
    CountsFromTheReply,
    KeepsItsPlaceAfterStop,
    DropsTheGrantThatMeetsTheStop,
    NeverSaysThatItWaits,
    PollsAndOvertakes,
    RenewsByAdding,
    RenewsByMakingAgain,
    RenewsWithoutComparing,
    AnswersRenewalsBackwards,
    ReleasesWithoutComparing,
    ReleasesTwice,
    AbandonsWithoutComparing,
    AbandonsNothing,
    RemovesBraces,
    ListsNeighbours,
    ForcesNothing,
    SeesNoEnd,
    MintsATokenForEachReply,
    MintsOneToken,
    /// The backend is sound, but says that it is not: where a claim of weakness is certain, it is tested too.
    ClaimsTooLittle,
}

const FLAWS: &[(Flaw, &[&str])] = &[
    (
        Flaw::GrantsToEverybody,
        &["acquire::a_free_lock_is_granted_and_a_held_one_is_not", "exclusion::eight_contenders_lose_no_update"],
    ),
    (Flaw::CountsARepeatTwice, &["acquire::the_same_claim_again_finds_its_own_grant_and_counts_once"]),
    (
        Flaw::RefusesARepeat,
        &[
            "acquire::the_same_claim_again_finds_its_own_grant_and_counts_once",
            "acquire::the_same_claim_again_restarts_its_ttl",
        ],
    ),
    (Flaw::TakesAnyTtl, &["acquire::a_ttl_that_the_store_cannot_keep_is_refused"]),
    (
        Flaw::LivesHalfAsLong,
        &[
            "acquire::the_grant_carries_the_ttl_that_the_store_gave_and_sent_at",
            "acquire::the_lock_is_taken_until_the_deadline_and_no_longer",
            "wait::the_end_of_the_holders_lease_is_noticed_without_any_message",
        ],
    ),
    (
        Flaw::NeverExpires,
        &[
            "acquire::the_lock_is_taken_until_the_deadline_and_no_longer",
            "wait::the_end_of_the_holders_lease_is_noticed_without_any_message",
            "inspect::a_lease_that_has_ended_is_seen_as_free",
        ],
    ),
    (Flaw::CountsFromTheReply, &["acquire::the_grant_carries_the_ttl_that_the_store_gave_and_sent_at"]),
    (Flaw::KeepsItsPlaceAfterStop, &["wait::none_only_after_stop_and_then_the_place_is_given_up"]),
    (Flaw::DropsTheGrantThatMeetsTheStop, &["wait::a_grant_on_its_way_when_stop_comes_is_returned"]),
    (Flaw::NeverSaysThatItWaits, &["wait::waiting_is_reported_once_the_store_has_said_busy"]),
    (Flaw::PollsAndOvertakes, &["wait::a_try_does_not_overtake_a_waiter", "wait::a_release_is_told_to_a_waiter"]),
    (Flaw::RenewsByAdding, &["renew::the_new_ttl_replaces_the_old_one_and_is_never_added_to_it"]),
    (
        Flaw::RenewsByMakingAgain,
        &[
            "renew::an_expired_grant_is_lost_and_never_made_again",
            "force_release::the_former_holders_renewal_answers_lost",
        ],
    ),
    (Flaw::RenewsWithoutComparing, &["renew::a_lock_that_another_has_taken_is_lost_and_left_alone"]),
    (
        Flaw::AnswersRenewalsBackwards,
        &["renew::one_failed_renewal_does_not_fail_the_others", "renew::a_large_batch_is_answered_in_order"],
    ),
    (
        Flaw::ReleasesWithoutComparing,
        &[
            "release::a_lock_that_another_has_taken_is_left_alone",
            "release::a_second_one_changes_nothing",
            "release::one_ends_one_hold_of_a_reentrant_lock",
        ],
    ),
    (Flaw::ReleasesTwice, &["release::a_second_one_answers_not_held", "release::a_second_one_changes_nothing"]),
    (
        Flaw::AbandonsWithoutComparing,
        &[
            "abandon::what_others_hold_is_left_alone",
            "abandon::it_may_be_repeated",
            "abandon::another_claim_of_the_owner_stands",
        ],
    ),
    (
        Flaw::AbandonsNothing,
        &["abandon::what_the_claim_holds_is_free_afterwards", "abandon::a_waiter_gets_what_was_abandoned"],
    ),
    (Flaw::RemovesBraces, &["key::names_are_distinct_locks"]),
    (Flaw::ListsNeighbours, &["list::every_held_key_that_begins_with_the_prefix_byte_for_byte_is_listed_once"]),
    (
        Flaw::ForcesNothing,
        &[
            "force_release::the_lock_is_free_afterwards_and_a_free_lock_answers_not_held",
            "force_release::the_former_holders_renewal_answers_lost",
            "force_release::waiters_are_woken",
        ],
    ),
    (Flaw::SeesNoEnd, &["inspect::it_says_whether_the_lock_is_held_and_what_the_store_knows"]),
    (Flaw::MintsATokenForEachReply, &["fencing::a_token_stays_the_same_while_its_owner_holds"]),
    (Flaw::MintsOneToken, &["fencing::tokens_strictly_grow_over_hand_overs"]),
    (
        Flaw::ClaimsTooLittle,
        &[
            "acquire::the_same_claim_again_is_locked_out",
            "acquire::the_same_owner_under_another_claim_is_refused",
            "renew::unchecked_it_prolongs_the_lock_of_another",
            "release::unchecked_it_frees_the_lock_of_another",
            "fencing::without_a_source_there_is_no_token",
        ],
    ),
];

#[test]
fn each_flaw_is_caught_by_the_trials_of_its_rule() {
    let sound = Store::new(None);
    for (flaw, trials) in FLAWS {
        for trial in *trials {
            if *flaw != Flaw::ClaimsTooLittle {
                suite::try_one(&sound, trial).unwrap_or_else(|failed| panic!("{trial} without a flaw: {failed:?}"));
            }
            assert!(suite::try_one(&Store::new(Some(*flaw)), trial).is_err(), "{trial} does not catch {flaw:?}");
        }
    }
}

struct Store(Broken);

impl Store {
    fn new(flaw: Option<Flaw>) -> Self {
        Self(Broken { flaw, memory: Memory::new() })
    }
}

#[async_trait]
impl Fixture for Store {
    fn name(&self) -> &str {
        "broken"
    }

    fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }

    fn clock(&self) -> Clock {
        Clock::Virtual
    }

    async fn connect(&self) -> Arc<dyn Backend> {
        Arc::new(self.0.clone())
    }
}

#[derive(Clone, Debug)]
struct Broken {
    flaw: Option<Flaw>,
    memory: Memory,
}

impl Broken {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// What the store is asked for instead of `claim`.
    fn bent(&self, claim: &Claim) -> Claim {
        let mut bent = claim.clone();
        bent.lease = Lease::fixed(self.bent_ttl(claim.lease.ttl()));
        bent.key = self.bent_key(&claim.key);
        if self.has(Flaw::CountsARepeatTwice) {
            bent.id = lock_core::ClaimId::random();
        }
        bent
    }

    fn bent_ttl(&self, ttl: Duration) -> Duration {
        match self.flaw {
            Some(Flaw::LivesHalfAsLong) => ttl / 2,
            Some(Flaw::NeverExpires) => Lease::MAX_TTL,
            Some(Flaw::TakesAnyTtl) => ttl.clamp(Memory::MIN_TTL, Lease::MAX_TTL),
            _ => ttl,
        }
    }

    fn bent_key(&self, key: &LockKey) -> LockKey {
        if self.has(Flaw::RemovesBraces) {
            LockKey::new(key.as_str().replace(['{', '}'], "")).expect("a name of a trial")
        } else {
            key.clone()
        }
    }

    async fn bend(&self, claim: &Claim, mut grant: Grant) -> Grant {
        grant.ttl = claim.lease.ttl();
        if self.has(Flaw::CountsFromTheReply) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            grant.sent_at = Moment::now();
        }
        if self.has(Flaw::MintsATokenForEachReply) {
            grant.fencing_token = Some(FencingToken::new(fresh_number()));
        }
        if self.has(Flaw::MintsOneToken) {
            grant.fencing_token = Some(FencingToken::new(1));
        }
        grant
    }

    async fn answer_a_lost_renewal(&self, grant: &Grant, ttl: Duration, lost: Result<Renewal>) -> Result<Renewal> {
        let mut again = grant.claim.clone();
        again.lease = Lease::fixed(ttl);
        if self.has(Flaw::RenewsWithoutComparing) {
            // Whatever entry is there is made to live for the ttl of this renewal.
            if self.memory.force_release(&again.key).await? == Release::NotHeld {
                return lost;
            }
            again.owner = Owner::random();
        } else if !self.has(Flaw::RenewsByMakingAgain) {
            return lost;
        }
        let made = self.memory.try_acquire(&again).await?;
        made.map_or(lost, |made| Ok(Renewal::new(made.sent_at, made.ttl)))
    }

    async fn poll(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        loop {
            if let Some(grant) = self.memory.try_acquire(claim).await? {
                return Ok(Some(grant));
            }
            stop.report_waiting();
            tokio::select! {
                () = stop.fired() => return Ok(None),
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }
}

fn fresh_number() -> u64 {
    u64::try_from(Owner::random().bits() >> 80).expect("48 bits")
}

#[async_trait]
impl Backend for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn guarantees(&self) -> Guarantees {
        let sound = self.memory.guarantees();
        if !self.has(Flaw::ClaimsTooLittle) {
            return sound;
        }
        Guarantees {
            exclusion: Exclusion::BestEffort,
            fencing: Fencing::None,
            reentrant: false,
            idempotent_acquire: false,
            release_check: OwnerCheck::None,
            renew_check: OwnerCheck::None,
            ..sound
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        let mut bent = self.bent(claim);
        if self.has(Flaw::RefusesARepeat) && self.memory.inspect(&claim.key).await?.held {
            return Ok(None);
        }
        if self.has(Flaw::GrantsToEverybody) {
            bent.key = LockKey::new(format!("{:032x}", Owner::random().bits()))?;
        }
        match self.memory.try_acquire(&bent).await? {
            Some(grant) => Ok(Some(self.bend(claim, grant).await)),
            None => Ok(None),
        }
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        let bent = self.bent(claim);
        let grant = match self.flaw {
            Some(Flaw::GrantsToEverybody) => return self.try_acquire(claim).await,
            Some(Flaw::PollsAndOvertakes) => self.poll(&bent, stop).await?,
            Some(Flaw::KeepsItsPlaceAfterStop) => {
                let memory = self.memory.clone();
                let wait = tokio::spawn(async move { memory.acquire(&bent, &Stop::new()).await });
                stop.report_waiting();
                tokio::select! {
                    grant = wait => grant.expect("the wait does not panic")?,
                    () = stop.fired() => None,
                }
            }
            Some(Flaw::NeverSaysThatItWaits) => {
                let unseen = Stop::new();
                tokio::select! {
                    grant = self.memory.acquire(&bent, &unseen) => grant?,
                    () = stop.fired() => None,
                }
            }
            Some(Flaw::DropsTheGrantThatMeetsTheStop) => {
                self.memory.acquire(&bent, stop).await?.filter(|_| !stop.is_fired())
            }
            _ => self.memory.acquire(&bent, stop).await?,
        };
        match grant {
            Some(grant) => Ok(Some(self.bend(claim, grant).await)),
            None => Ok(None),
        }
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        let mut answers = Vec::new();
        for renewal in batch {
            let (grant, asked) = (renewal.grant, renewal.ttl);
            let mut ttl = self.bent_ttl(asked);
            if self.has(Flaw::RenewsByAdding) {
                let seen = self.memory.inspect(&grant.claim.key).await;
                ttl += seen.map_or(Duration::ZERO, |seen| seen.remaining.unwrap_or_default());
            }
            let mut answer = self.memory.renew(&[Renew::new(grant, ttl)]).await.remove(0);
            let lost = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Lost);
            if lost {
                answer = self.answer_a_lost_renewal(grant, ttl, answer).await;
            }
            answers.push(answer.map(|answer| Renewal::new(answer.sent_at, asked)));
        }
        if self.has(Flaw::AnswersRenewalsBackwards) {
            answers.reverse();
        }
        answers
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        match self.flaw {
            Some(Flaw::ReleasesWithoutComparing) => self.memory.force_release(&grant.claim.key).await,
            Some(Flaw::ReleasesTwice) => self.memory.release(grant).await.map(|_| Release::Released),
            _ => self.memory.release(grant).await,
        }
    }

    async fn abandon(&self, claim: &Claim) -> Result<Undone> {
        match self.flaw {
            Some(Flaw::AbandonsWithoutComparing) => drop(self.memory.force_release(&claim.key).await?),
            Some(Flaw::AbandonsNothing) => {}
            _ => drop(self.memory.abandon(&self.bent(claim)).await?),
        }
        Ok(Undone::Settled)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection> {
        let mut seen = self.memory.inspect(&self.bent_key(key)).await?;
        seen.held |= self.has(Flaw::SeesNoEnd);
        Ok(seen)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockKey>> {
        let prefix = if self.has(Flaw::ListsNeighbours) { prefix.trim_end_matches('/') } else { prefix };
        self.memory.list(prefix).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Release> {
        if self.has(Flaw::ForcesNothing) {
            return Ok(Release::Released);
        }
        self.memory.force_release(&self.bent_key(key)).await
    }

    async fn close(&self) -> Result<()> {
        self.memory.close().await
    }
}
