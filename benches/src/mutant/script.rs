//! Our own strategies on one Redis, with a line of one script changed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::wait::{self, Attempt};
use lock_core::{Backend, Claim, FencingToken, Grant, Moment, Release, Renew, Renewal, Result, Stop};
use lock_redis::{Call, Connection, Script};

use super::flawed::{Flaw, flawed, load, lost, ours};
use crate::strategy::{Kind, Seat};

/// The scripts of one strategy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scripts {
    kind: Kind,
    acquire: &'static str,
    renew: &'static str,
    release: &'static str,
    /// What is written as the claim.
    claim: fn(&Claim) -> String,
}

pub(super) const TOKEN: Scripts = Scripts {
    kind: Kind::Token,
    acquire: include_str!("../../../lock-redis/src/token/acquire.lua"),
    renew: include_str!("../../../lock-redis/src/token/renew.lua"),
    release: include_str!("../../../lock-redis/src/token/release.lua"),
    claim: |claim| format!("{:032x}", claim.id.bits()),
};

pub(super) const REENTRANT: Scripts = Scripts {
    kind: Kind::Reentrant,
    acquire: include_str!("../../../lock-redis/src/reentrant/acquire.lua"),
    renew: include_str!("../../../lock-redis/src/reentrant/renew.lua"),
    release: include_str!("../../../lock-redis/src/reentrant/release.lua"),
    ..TOKEN
};

impl Scripts {
    pub(super) fn with_acquire(self, line: &str, changed: &str) -> Self {
        Self { acquire: change(self.acquire, line, changed), ..self }
    }

    pub(super) fn with_renew(self, line: &str, changed: &str) -> Self {
        Self { renew: change(self.renew, line, changed), ..self }
    }

    pub(super) fn with_release(self, line: &str, changed: &str) -> Self {
        Self { release: change(self.release, line, changed), ..self }
    }

    pub(super) fn with_claim(self, claim: fn(&Claim) -> String) -> Self {
        Self { claim, ..self }
    }

    /// The strategy that runs these.
    pub(super) async fn backend(self, seat: &Seat) -> Result<Arc<dyn Backend>> {
        let ours = ours(self.kind, seat).await?;
        let scripts = [self.acquire, self.renew, self.release];
        load(&seat.urls, &scripts).await?;
        let [acquire, renew, release] = scripts.map(Script::new);
        flawed(Changed { ours, redis: seat.redis().await?, scripts: self, acquire, renew, release })
    }
}

/// # Panics
///
/// If the script has no such line, once: it is not ours any more, and the mutant must follow it.
fn change(script: &str, line: &str, changed: &str) -> &'static str {
    assert_eq!(script.matches(line).count(), 1, "no single `{line}` in\n{script}");
    script.replace(line, changed).leak()
}

struct Changed {
    ours: Arc<dyn Backend>,
    redis: Connection,
    scripts: Scripts,
    acquire: Script,
    renew: Script,
    release: Script,
}

/// What belongs to one claim, as `lock-redis` names it.
struct Names {
    keys: Vec<String>,
    channel: String,
    /// The arguments that say who asks.
    who: Vec<String>,
}

impl Changed {
    /// The names of a cell's keys have no braces, so no more of the rules for names is needed.
    fn names(&self, claim: &Claim) -> Names {
        let (key, who) = (claim.key.as_str(), (self.scripts.claim)(claim));
        if self.scripts.kind == Kind::Reentrant {
            let hex = format!("{:032x}", claim.owner.bits());
            let owner = format!("{}-{}-{}-{}-{}:1", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
            return Names {
                keys: vec![key.to_owned(), format!("hasp-claims:{{{key}}}"), format!("hasp-fence:{{{key}}}")],
                channel: format!("redisson_lock__channel:{{{key}}}"),
                who: vec![owner, who],
            };
        }
        Names {
            keys: vec![format!("hasp:{key}"), format!("hasp-fence:{{hasp:{key}}}")],
            channel: format!("hasp-released:{{hasp:{key}}}"),
            who: vec![who],
        }
    }

    async fn run(&self, operation: &'static str, script: &Script, names: &Names, rest: &[String]) -> Result<i64> {
        let keys: Vec<_> = names.keys.iter().map(String::as_str).collect();
        let args: Vec<_> = names.who.iter().chain(rest).map(String::as_str).collect();
        self.redis.run_script(operation, script, &Call { keys: &keys, args: &args }).await
    }

    async fn attempt(&self, claim: &Claim) -> Result<Attempt> {
        let (names, ttl) = (self.names(claim), claim.lease.ttl());
        let sent_at = Moment::now();
        let answer = self.run("acquire", &self.acquire, &names, &millis(ttl)).await?;
        Ok(match u64::try_from(answer) {
            Ok(token) if token > 0 => {
                Attempt::Granted(Grant::new(claim.clone(), sent_at, ttl).with_fencing_token(FencingToken::new(token)))
            }
            _ => Attempt::Busy { remaining: None },
        })
    }

    async fn renew_one(&self, renew: &Renew<'_>) -> Result<Renewal> {
        let names = self.names(&renew.grant.claim);
        let sent_at = Moment::now();
        let answer = self.run("renew", &self.renew, &names, &millis(renew.ttl)).await?;
        if answer > 0 { Ok(Renewal::new(sent_at, renew.ttl)) } else { Err(lost()) }
    }
}

/// A ttl, and that of the fence.
fn millis(ttl: Duration) -> [String; 2] {
    const DAY: u128 = 24 * 60 * 60 * 1_000;
    [ttl.as_millis().to_string(), (ttl.as_millis() + DAY).to_string()]
}

#[async_trait]
impl Flaw for Changed {
    fn ours(&self) -> &dyn Backend {
        &*self.ours
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        Ok(match self.attempt(claim).await? {
            Attempt::Granted(grant) => Some(grant),
            Attempt::Busy { .. } => None,
        })
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        wait::poll(stop, Duration::from_millis(50), || self.attempt(claim)).await
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        futures_util::future::join_all(batch.iter().map(|renew| self.renew_one(renew))).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        let names = self.names(&grant.claim);
        let mut rest = vec![names.channel.clone()];
        if self.scripts.kind == Kind::Reentrant {
            // The set of claims does not decide alone.
            rest.push("0".to_owned());
        }
        rest.push("PUBLISH".to_owned());
        let answer = self.run("release", &self.release, &names, &rest).await?;
        Ok(if answer > 0 { Release::Released } else { Release::NotHeld })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "no single `return 7`")]
    fn a_line_that_is_not_in_our_script_is_not_changed_unnoticed() {
        let _ = TOKEN.with_release("return 7", "return 8");
    }
}
