use std::time::Duration;

use async_trait::async_trait;
use lock_core::wait::Attempt;
use lock_core::{
    Backend, Claim, Effect, Error, ErrorKind, Exclusion, Expiry, Fencing, FencingToken, Grant, Guarantees, Inspection,
    LockKey, Moment, NodeFailure, Owner, OwnerCheck, Release, Renew, Renewal, Result, Stop, Undone,
};
use redis::{Pipeline, RedisResult};

use crate::channel::Channel;
use crate::connection::Connection;
use crate::error::{Failure, explain};
use crate::lease::Ttl;
use crate::script::{self, Call};
use crate::{Config, MinReplicas, answer, keys, listing};

/// Redisson's channel of a plain lock.
const CHANNEL: &str = "redisson_lock__channel";

/// Ours, beside Redisson's hash.
const CLAIMS: &str = "hasp-claims";
const FENCE: &str = "hasp-fence";

const NAME: &str = "redis-reentrant";

/// A hash per lock that counts the holds of one owner: Redisson's `RLock`, on the wire, so that both exclude and wake each
/// other.
///
/// The same owner ([`Lock::owner`](lock_core::Lock::owner)) may acquire again what it holds; the lock is free when each
/// acquisition has been released. Beside Redisson's hash there is a set of the claims that hold, so that a request whose
/// reply was lost counts once, however often it is repeated; Redisson does not read it.
///
/// # Keys
///
/// The lock's key is its name as it stands, without a prefix: choose names that no other data has. `<name>` is a hash of one
/// field, `<owner as uuid>:1`, whose value is the number of holds. `hasp-claims:{<name>}` is the set of claims, with the same
/// ttl. `hasp-fence:{<name>}` holds the last fencing token and outlives the lock by a day. Waiters listen on Redisson's
/// channel, `redisson_lock__channel:{<name>}`.
///
/// A name with braces that leaves Redisson's own names in different cluster slots, such as `a{` or `a}b`, is refused with
/// `InvalidInput`.
///
/// # Where it differs from Redisson
///
/// A release leaves the ttl of what remains as it is (Redisson's restarts it, and so may lengthen a short lease), and a
/// re-entry never shortens the ttl of a longer hold. The fencing token stays the same on re-entry.
#[derive(Debug)]
pub struct Reentrant {
    connection: Connection,
    options: ReentrantOptions,
    channel: Channel,
}

/// How [`Reentrant`] keeps its locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReentrantOptions {
    /// How many replicas must have a grant or a renewal before it counts; none unless set.
    pub min_replicas: Option<MinReplicas>,
}

impl ReentrantOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, but a grant or a renewal counts only when `count` replicas have it, too, within `limit`: what it costs, what
    /// it gives and what it does not is said at [`TokenOptions::with_min_replicas`](crate::TokenOptions::with_min_replicas).
    ///
    /// A re-entry is a grant: one that too few replicas have is undone, and the other holds of its owner stay.
    #[must_use]
    pub fn with_min_replicas(mut self, count: u32, limit: Duration) -> Self {
        self.min_replicas = Some(MinReplicas::new(count, limit));
        self
    }
}

impl Reentrant {
    /// Connects to the server at `url`, with the defaults; see [`Connection::open`] for the forms of a URL.
    ///
    /// # Errors
    ///
    /// As for [`Connection::open`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is kept.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::new(Connection::open(url, Config::new()).await?).await
    }

    /// Keeps locks over `connection`, with the defaults. It asks the server whether the user may use the locks' channel, and
    /// polls if not.
    ///
    /// # Errors
    ///
    /// As for [`Connection::open`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is kept.
    pub async fn new(connection: Connection) -> Result<Self> {
        Self::with_options(connection, ReentrantOptions::new()).await
    }

    /// The same with options.
    ///
    /// # Errors
    ///
    /// `Unsupported` for `min_replicas` over a manager without a pool; `InvalidInput` for `min_replicas` of zero; and what
    /// [`Connection::open`] says.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is kept.
    pub async fn with_options(connection: Connection, options: ReentrantOptions) -> Result<Self> {
        if let Some(min_replicas) = &options.min_replicas {
            min_replicas.check(&connection, NAME).await?;
        }
        let channel = Channel::probe(&connection, &keys::redisson(CHANNEL, "hasp-probe"), NAME).await?;
        Ok(Self { connection, options, channel })
    }

    async fn attempt(&self, claim: &Claim, ttl: &Ttl, names: &Names) -> Result<Attempt> {
        let call = Call {
            keys: &[claim.key.as_str(), &names.claims, &names.fence],
            args: &[&field(claim.owner), &keys::of_claim(claim), &ttl.millis, &ttl.fence_millis],
        };
        let sent_at = Moment::now();
        let answer = match &self.options.min_replicas {
            None => self.connection.run(&script::REENTRANT_ACQUIRE, &call).await,
            Some(min_replicas) => {
                // The claim may have been counted or not; its set tells.
                let undo = self.end_hold(claim, true, "acquire");
                // Boxed, so that an attempt without it does not carry its size.
                Box::pin(min_replicas.acquire(&self.connection, &script::REENTRANT_ACQUIRE, &call, undo)).await
            }
        };
        match answer {
            Ok(answer) => Ok(answer::acquire(answer, claim, sent_at, ttl)),
            Err(failure) => Err(explain_key(&failure, "acquire", &claim.key)),
        }
    }

    async fn end_hold(&self, claim: &Claim, claims_decide: bool, operation: &'static str) -> Result<Release> {
        let names = Names::new(&claim.key, operation)?;
        let channel = self.channel.to_publish(names.channel);
        let call = Call {
            keys: &[claim.key.as_str(), &names.claims],
            args: &[
                &field(claim.owner),
                &keys::of_claim(claim),
                &channel,
                if claims_decide { "1" } else { "0" },
                self.channel.publish(),
            ],
        };
        let answer = self.connection.run(&script::REENTRANT_RELEASE, &call).await;
        answer.map(answer::release).map_err(|failure| explain_key(&failure, operation, &claim.key))
    }
}

#[async_trait]
impl Backend for Reentrant {
    fn name(&self) -> &str {
        NAME
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            exclusion: Exclusion::WhileLeaseHolds,
            fencing: Fencing::ServerClock,
            fair: false,
            reentrant: true,
            idempotent_acquire: true,
            release_check: OwnerCheck::Atomic,
            renew_check: OwnerCheck::Atomic,
            frees_after_crash: true,
            trusts_client_clock: false,
            wake_up: self.channel.wake_up(),
            node_failure: NodeFailure::LosesLocks,
            expiry: Expiry::Entry,
            min_ttl: Ttl::MIN,
            ttl_step: Ttl::STEP,
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        let ttl = Ttl::new(claim.lease.ttl(), NAME, "acquire")?;
        let names = Names::new(&claim.key, "acquire")?;
        Ok(answer::granted(self.attempt(claim, &ttl, &names).await?))
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        let ttl = Ttl::new(claim.lease.ttl(), NAME, "acquire")?;
        let names = Names::new(&claim.key, "acquire")?;
        self.channel.wait(&self.connection, || names.channel.clone(), stop, || self.attempt(claim, &ttl, &names)).await
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        let prepared: Vec<Result<_>> = batch
            .iter()
            .map(|renew| {
                let claim = &renew.grant.claim;
                let ttl = Ttl::new(renew.ttl, NAME, "renew")?;
                let names = Names::new(&claim.key, "renew")?;
                Ok((claim, ttl, names, field(claim.owner), keys::of_claim(claim)))
            })
            .collect();
        let lists: Vec<_> = prepared
            .iter()
            .flatten()
            .map(|(claim, ttl, names, field, member)| {
                let args = [&**field, member, &ttl.millis, &ttl.fence_millis];
                ([claim.key.as_str(), &names.claims, &names.fence], args)
            })
            .collect();
        let calls: Vec<_> = lists.iter().map(|(keys, args)| Call { keys, args }).collect();
        let sent_at = Moment::now();
        let answers = match &self.options.min_replicas {
            None => self.connection.run_all(&script::REENTRANT_RENEW, &calls).await,
            Some(min_replicas) => Box::pin(min_replicas.run(&self.connection, &script::REENTRANT_RENEW, &calls)).await,
        };
        let mut answers = answers.into_iter();
        drop(calls);
        prepared
            .iter()
            .map(|prepared| {
                let (claim, ttl, ..) = prepared.as_ref().map_err(Clone::clone)?;
                match answers.next().expect("there is an answer to each call") {
                    Ok(answer) => answer::renewal(answer, sent_at, ttl, NAME, &claim.key),
                    Err(failure) => Err(explain_key(&failure, "renew", &claim.key)),
                }
            })
            .collect()
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        self.end_hold(&grant.claim, false, "release").await
    }

    async fn abandon(&self, claim: &Claim) -> Result<Undone> {
        // A request that was delayed in the network may still land: nothing that is sent now can tell.
        self.end_hold(claim, true, "abandon").await.map(|_| Undone::MayStillLand)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection> {
        let names = Names::new(key, "inspect")?;
        let mut pipeline = redis::pipe();
        pipeline.cmd("HKEYS").arg(key.as_str()).cmd("PTTL").arg(key.as_str());
        pipeline.cmd("GET").arg(&names.fence).cmd("SRANDMEMBER").arg(&names.claims);
        pipeline.cmd("PUBSUB").arg(self.channel.count()).arg(&names.channel);
        type Found = (
            RedisResult<Vec<String>>,
            RedisResult<i64>,
            RedisResult<Option<u64>>,
            RedisResult<Option<String>>,
            RedisResult<(String, u64)>,
        );
        let found: Result<Found, Failure> = self.connection.pipeline(pipeline.ignore_errors()).await;
        let (fields, remaining, token, claim, waiters) =
            found.map_err(|failure| explain_key(&failure, "inspect", key))?;
        let mut inspection = Inspection::default();
        // Those who poll cannot be counted.
        inspection.waiters = waiters.ok().filter(|_| self.channel.pushes()).map(|(_, waiters)| waiters);
        let fields = fields.map_err(|error| explain_key(&error.into(), "inspect", key))?;
        let Some(holder) = fields.into_iter().next() else { return Ok(inspection) };
        inspection.held = true;
        inspection.holder = Some(holder);
        inspection.remaining = remaining.ok().and_then(answer::remaining);
        // Without a claim the holder is Redisson, and the last token is not its own.
        if let Ok(Some(claim)) = claim {
            inspection.label = claim.split_once(':').map(|(_, label)| label.to_owned());
            inspection.fencing_token = token.ok().flatten().map(FencingToken::new);
        }
        Ok(inspection)
    }

    /// Lists what this crate holds, by the sets of claims: a lock of Redisson's cannot be told from another hash.
    async fn list(&self, prefix: &str) -> Result<Vec<LockKey>> {
        let explain = |failure| explain(&failure, NAME, "list");
        let pattern = keys::beginning_with(&format!("{CLAIMS}:{{"));
        let found = listing::scan(&self.connection, &pattern, "set").await.map_err(explain)?;
        let names: Vec<_> = found
            .iter()
            .filter_map(|claims| keys::of_sibling(CLAIMS, claims).filter(|name| name.starts_with(prefix)))
            .filter_map(|name| LockKey::new(name).ok())
            .collect();
        let mut held = Vec::with_capacity(names.len());
        // A set may outlive its hash, where another client has forced the lock.
        for names in names.chunks(256) {
            let mut pipeline = Pipeline::with_capacity(names.len());
            for name in names {
                pipeline.cmd("EXISTS").arg(name.as_str());
            }
            let exist: Vec<bool> = self.connection.pipeline(&pipeline).await.map_err(explain)?;
            held.extend(names.iter().zip(exist).filter(|(_, exists)| *exists).map(|(name, _)| name.clone()));
        }
        Ok(held)
    }

    async fn force_release(&self, key: &LockKey) -> Result<Release> {
        let names = Names::new(key, "force_release")?;
        let channel = self.channel.to_publish(names.channel);
        let call = Call { keys: &[key.as_str(), &names.claims], args: &[&channel, self.channel.publish()] };
        let answer = self.connection.run(&script::FORCE_RELEASE, &call).await;
        answer.map(answer::release).map_err(|failure| explain_key(&failure, "force_release", key))
    }

    async fn close(&self) -> Result<()> {
        // Nothing is kept for a lock but the entry itself, and subscriptions end with their waiters.
        Ok(())
    }
}

fn explain_key(failure: &Failure, operation: &'static str, key: &LockKey) -> Error {
    explain(failure, NAME, operation).with_key(key)
}

/// What belongs to a lock beside its own key.
struct Names {
    claims: String,
    fence: String,
    channel: String,
}

impl Names {
    fn new(key: &LockKey, operation: &'static str) -> Result<Self> {
        let channel = keys::redisson(CHANNEL, key.as_str());
        let reserved = |name| key.as_str().strip_prefix(name).is_some_and(|rest| rest.starts_with(':'));
        let reserved = [CLAIMS, FENCE].into_iter().any(reserved);
        let fault = if reserved {
            "keys that begin with `hasp-claims:` or `hasp-fence:` are reserved; use another name"
        } else if keys::slot(&channel) != keys::slot(key.as_str()) {
            "by Redisson's rule the keys of this name fall into different cluster slots; leave out the brace, or use `Token`"
        } else {
            return Ok(Self {
                claims: keys::sibling(CLAIMS, key.as_str()),
                fence: keys::sibling(FENCE, key.as_str()),
                channel,
            });
        };
        Err(Error::new(ErrorKind::InvalidInput, Effect::None, NAME, operation, fault).with_key(key))
    }
}

/// The owner as Redisson writes one: a uuid of the client, and the number of a thread.
fn field(owner: Owner) -> String {
    let mut hex = String::with_capacity(32);
    keys::push_hex(&mut hex, owner.bits());
    keys::joined(&[&hex[..8], "-", &hex[8..12], "-", &hex[12..16], "-", &hex[16..20], "-", &hex[20..], ":1"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_redissons() {
        for (key, channel) in [
            ("orders/42", "redisson_lock__channel:{orders/42}"),
            ("loc{ks}:e", "redisson_lock__channel:loc{ks}:e"),
            ("{a}}", "redisson_lock__channel:{a}}"),
        ] {
            assert_eq!(Names::new(&LockKey::new(key).unwrap(), "acquire").unwrap().channel, channel);
        }
        let owner = Owner::from_bits(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(field(owner), "01234567-89ab-cdef-0123-456789abcdef:1");
    }

    #[test]
    fn names_that_redisson_would_scatter_are_refused() {
        for key in ["a{", "a}b", "{", "}", "{}a", "a}{b"] {
            let error = Names::new(&LockKey::new(key).unwrap(), "acquire").map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{key}");
            assert!(error.to_string().contains("cluster slots"), "{error}");
        }
    }
}
