//! Claims that are put to the backend itself: nobody renews them, and nobody knows what was lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{Backend, Claim, Effect, ErrorKind, Grant, LockKey, Moment, Owner, Renew};
use lock_testkit::history::{Attempt, Hold};

use super::{Child, Client, lock, released};
use crate::Failure;
use crate::lab::protocol::{Answer, Wanted};

/// A claim that was put to the backend without the driver.
pub(super) struct Claimed {
    backend: Arc<dyn Backend>,
    claim: Claim,
    /// The acquisition while it is not decided: the same claim again is the same acquisition.
    attempt: Mutex<Option<Attempt>>,
    grant: Mutex<Option<Grant>>,
    hold: Mutex<Option<Hold>>,
}

impl Child {
    pub(super) async fn raw_acquire(&self, client: &str, wanted: &Wanted, name: String) -> Result<Answer, Failure> {
        let Client { locks, actor } = self.client(client)?;
        let earlier = lock(&self.claims).get(&name).cloned();
        let claimed = match earlier {
            Some(claimed) => claimed,
            None => {
                let owner = wanted.owner()?.unwrap_or_else(Owner::random);
                let claim = Claim::new(LockKey::new(&*wanted.key)?, owner, wanted.lease());
                let backend = Arc::clone(locks.backend());
                let claimed = Claimed {
                    backend,
                    claim,
                    attempt: Mutex::default(),
                    grant: Mutex::default(),
                    hold: Mutex::default(),
                };
                Arc::clone(lock(&self.claims).entry(name).or_insert_with(|| Arc::new(claimed)))
            }
        };
        let undecided = lock(&claimed.attempt).take();
        let is_repeated = undecided.is_some();
        let attempt = undecided.unwrap_or_else(|| match &wanted.owner {
            Some(owner) => actor.acquiring_for(wanted.key.as_str(), owner.as_str()),
            None => actor.acquiring(wanted.key.as_str()),
        });
        match claimed.backend.try_acquire(&claimed.claim).await {
            Ok(Some(grant)) => {
                let (token, deadline) = (grant.fencing_token, deadline(grant.sent_at, grant.ttl));
                // The same claim again is the same hold.
                let mut hold = lock(&claimed.hold);
                match &*hold {
                    Some(hold) => {
                        attempt.busy();
                        hold.renewed(deadline);
                    }
                    None => *hold = Some(attempt.granted(token, deadline)),
                }
                *lock(&claimed.grant) = Some(grant);
                Ok(Answer::Granted {
                    token: token.map(lock_core::FencingToken::value),
                    remaining: deadline.remaining(),
                })
            }
            Ok(None) => {
                // What refuses a repeated claim may be its own entry.
                if is_repeated {
                    *lock(&claimed.attempt) = Some(attempt);
                } else {
                    attempt.busy();
                }
                Ok(Answer::Busy)
            }
            Err(error) => {
                if is_repeated || error.effect() == Effect::Unknown {
                    *lock(&claimed.attempt) = Some(attempt);
                } else {
                    attempt.failed(error.effect());
                }
                Ok(Answer::error(&error))
            }
        }
    }
}

impl Claimed {
    pub(super) async fn renew(&self, ttl: Duration) -> Result<Answer, Failure> {
        let grant = lock(&self.grant).clone().ok_or("this claim has no grant")?;
        let answers = self.backend.renew(&[Renew::new(&grant, ttl)]).await;
        let answer = answers.into_iter().next().ok_or("a renewal has no answer")?;
        let hold = lock(&self.hold);
        let hold = hold.as_ref().ok_or("this claim has no hold")?;
        Ok(match answer {
            Ok(renewal) => {
                let deadline = deadline(renewal.sent_at, renewal.ttl);
                hold.renewed(deadline);
                // There is no driver to know that it comes too late: what the backend says is acted on.
                hold.affirmed(deadline);
                Answer::Renewed { remaining: deadline.remaining() }
            }
            Err(error) => {
                if error.kind() == ErrorKind::Lost {
                    hold.renewal_lost();
                }
                Answer::error(&error)
            }
        })
    }

    pub(super) async fn release(&self) -> Result<Answer, Failure> {
        let grant = lock(&self.grant).clone().ok_or("this claim has no grant")?;
        if let Some(hold) = &*lock(&self.hold) {
            hold.releasing();
        }
        let answer = self.backend.release(&grant).await;
        if let Some(hold) = &*lock(&self.hold) {
            match &answer {
                Ok(answer) => hold.released(*answer),
                Err(error) => hold.release_failed(error.effect()),
            }
        }
        Ok(match answer {
            Ok(answer) => released(answer),
            Err(error) => Answer::error(&error),
        })
    }

    pub(super) async fn abandon(&self) -> Result<Answer, Failure> {
        let undone = self.backend.abandon(&self.claim).await?;
        Ok(Answer::Undone { settled: undone == lock_core::Undone::Settled })
    }
}

/// As the driver counts it: `docs/safety.md`.
fn deadline(sent_at: Moment, ttl: Duration) -> Moment {
    let drift = ttl / 100 + Duration::from_millis(2);
    sent_at.saturating_add(ttl.saturating_sub(drift))
}
