use std::time::Duration;

use async_trait::async_trait;
use lock_core::wait::Attempt;
use lock_core::{
    Backend, Claim, Effect, Error, ErrorKind, Exclusion, Expiry, Fencing, FencingToken, Grant, Guarantees, Inspection,
    LockKey, Moment, NodeFailure, OwnerCheck, Release, Renew, Renewal, Result, Stop, Undone,
};
use redis::RedisResult;

use crate::channel::Channel;
use crate::connection::Connection;
use crate::error::{Failure, explain};
use crate::lease::Ttl;
use crate::script::{self, Call};
use crate::{Config, MinReplicas, answer, keys, listing, watch};

/// The namespaces of what belongs to a lock beside its own key. No lock has a key that begins so.
const FENCE: &str = "hasp-fence";
const RELEASED: &str = "hasp-released";

/// A string per lock, set if absent: the algorithm of redis.io's "Distributed Locks with Redis" for a single instance, with
/// a fencing token.
///
/// Acquire is one script: `SET key value NX PX ttl`, and beside it the fencing token. Release deletes the key if it still
/// holds the claim's value ([`Unlock`] says how), and tells the waiters. Not re-entrant.
///
/// # Keys
///
/// `<prefix><name>` holds `<claim in hex>[:label]` and lives as long as the lease. `hasp-fence:{<prefix><name>}` holds the
/// last fencing token and outlives the lock by a day. Waiters listen on the channel `hasp-released:{<prefix><name>}`. All
/// share one cluster slot. Keys that begin with `hasp-fence:` or `hasp-released:` are no locks: such a name is refused.
///
/// An ACL user needs `~<prefix>* ~hasp-fence:* &hasp-released:*` and the commands HELLO, SELECT, INFO, EVALSHA, EVAL, SCRIPT,
/// SET, GET, DEL, PTTL, PEXPIRE, TIME, EXISTS, PUBLISH, SUBSCRIBE and UNSUBSCRIBE; to inspect and list also PUBSUB and SCAN;
/// under Sentinel ROLE, for [`min_replicas`](TokenOptions::with_min_replicas) WAIT, in a cluster CLUSTER, ASKING, SPUBLISH,
/// SSUBSCRIBE and SUNSUBSCRIBE.
///
/// # Failover
///
/// Replication is asynchronous. A replica that is promoted without the last grants knows nothing of them, and the next comer
/// is granted the same lock inside the first one's lease; a renewal then finds that out. An old master that is not told of its
/// end grants, too. `min_replicas` narrows both, and closes neither.
///
/// Any lock that is a plain string under the same key excludes this one and is excluded by it.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> lock_core::Result<()> {
/// use lock_core::Locks;
/// use lock_redis::Token;
///
/// let locks = Locks::new(Token::connect("redis://127.0.0.1").await?);
/// let guard = locks.lock("orders/42")?.acquire().await?;
/// println!("fencing token: {:?}", guard.fencing_token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Token {
    connection: Connection,
    options: TokenOptions,
    channel: Channel,
}

/// How [`Token`] keeps its locks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenOptions {
    /// What every key begins with, so that no lock meets another key of the application; `hasp:` unless set. May be empty,
    /// to meet locks of other libraries under their own names; then [`list`](Backend::list) is unsupported.
    pub prefix: String,
    /// How a release compares and deletes; by script unless set.
    pub unlock: Unlock,
    /// How many replicas must have a grant or a renewal before it counts; none unless set.
    pub min_replicas: Option<MinReplicas>,
}

impl TokenOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self { prefix: "hasp:".to_owned(), unlock: Unlock::Script, min_replicas: None }
    }

    /// The same with another prefix.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The same with another way to release.
    #[must_use]
    pub fn with_unlock(mut self, unlock: Unlock) -> Self {
        self.unlock = unlock;
        self
    }

    /// The same, but a grant or a renewal counts only when `count` replicas have it, too, within `limit` (`WAIT`). A grant
    /// that they do not have in time is undone, and fails with `Unavailable`; a renewal does not move the deadline. Keep
    /// `limit` well below a third of the shortest ttl.
    ///
    /// Each grant costs a second round trip, and a connection to itself while it lasts: at most 32 of the
    /// [`Connection`]'s own at once, or one of its pool. Releases are not waited for.
    ///
    /// It makes a failover lose fewer locks, and keeps an old master that is cut off with no replica from granting any. It
    /// does not make Redis agree with itself: the replica that is promoted may be one that does not have the lock, unless
    /// `count` is the number of all; what a replica has in memory it loses when it restarts; and a master that is cut off
    /// together with `count` replicas goes on granting.
    #[must_use]
    pub fn with_min_replicas(mut self, count: u32, limit: Duration) -> Self {
        self.min_replicas = Some(MinReplicas::new(count, limit));
        self
    }
}

impl Default for TokenOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// How [`Token`] makes sure that it deletes only its own key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unlock {
    /// A script compares and deletes: one round trip.
    Script,
    /// `WATCH`, `GET`, compare, `MULTI`, `DEL`, `EXEC`, on a pool connection that nobody else uses meanwhile: three round
    /// trips. On a shared connection it would be unsafe, because another task's `EXEC` ends the `WATCH`.
    ///
    /// A server that is full (`maxmemory`, `noeviction`) lets no command into a transaction; there the script does it.
    Watch,
}

impl Token {
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
        Self::new(Connection::open(url, Config::new()).await?, TokenOptions::new()).await
    }

    /// Keeps locks over `connection`. It asks the server whether the user may use the locks' channel, and polls if not.
    ///
    /// # Errors
    ///
    /// `Unsupported` for [`Unlock::Watch`] without a pool, or for `min_replicas` over a manager without one; `InvalidInput`
    /// for a prefix with control characters, or `min_replicas` of zero; and what [`Connection::open`] says.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is kept.
    pub async fn new(connection: Connection, options: TokenOptions) -> Result<Self> {
        let name = strategy(options.unlock);
        if options.unlock == Unlock::Watch && connection.cluster().is_some() {
            let says = "unlocking by WATCH needs a pool, and there is none for a cluster; unlock by script";
            return Err(Error::new(ErrorKind::Unsupported, Effect::None, name, "connect", says));
        }
        if options.unlock == Unlock::Watch && connection.pool().is_none() {
            let says = "unlocking by WATCH needs a connection to itself; add a pool (`Connection::with_pool`), or unlock by script";
            return Err(Error::new(ErrorKind::Unsupported, Effect::None, name, "connect", says));
        }
        if options.prefix.contains(char::is_control) {
            let says = "the prefix has a control character; use printable text such as `hasp:`";
            return Err(Error::new(ErrorKind::InvalidInput, Effect::None, name, "connect", says));
        }
        if let Some(min_replicas) = &options.min_replicas {
            min_replicas.check(&connection, name).await?;
        }
        let sample = keys::sibling(RELEASED, &format!("{}probe", options.prefix));
        let channel = Channel::probe(&connection, &sample, name).await?;
        Ok(Self { connection, options, channel })
    }

    fn explain(&self, failure: &Failure, operation: &'static str, key: &LockKey) -> Error {
        explain(failure, self.name(), operation).with_key(key)
    }

    /// The lock's own key.
    fn key(&self, name: &LockKey, operation: &'static str) -> Result<String> {
        let key = keys::joined(&[&self.options.prefix, name.as_str()]);
        if is_reserved(&key) {
            let says =
                format!("keys that begin with `{FENCE}:` or `{RELEASED}:` are reserved; use another name or prefix");
            let error = Error::new(ErrorKind::InvalidInput, Effect::None, self.name(), operation, says);
            return Err(error.with_key(name));
        }
        Ok(key)
    }

    fn channel_of(&self, key: &str) -> String {
        self.channel.to_publish(keys::sibling(RELEASED, key))
    }

    async fn attempt(&self, claim: &Claim, ttl: &Ttl, key: &str) -> Result<Attempt> {
        let fence = keys::sibling(FENCE, key);
        let call = Call { keys: &[key, &fence], args: &[&keys::of_claim(claim), &ttl.millis, &ttl.fence_millis] };
        let sent_at = Moment::now();
        let answer = match &self.options.min_replicas {
            None => self.connection.run(&script::TOKEN_ACQUIRE, &call).await,
            Some(min_replicas) => {
                let undo = self.unlock(claim, "acquire");
                // Boxed, so that an attempt without it does not carry its size.
                Box::pin(min_replicas.acquire(&self.connection, &script::TOKEN_ACQUIRE, &call, undo)).await
            }
        };
        match answer {
            Ok(answer) => Ok(answer::acquire(answer, claim, sent_at, ttl)),
            Err(failure) => Err(self.explain(&failure, "acquire", &claim.key)),
        }
    }

    async fn unlock(&self, claim: &Claim, operation: &'static str) -> Result<Release> {
        let key = self.key(&claim.key, operation)?;
        let channel = self.channel_of(&key);
        let value = keys::of_claim(claim);
        let watched = match (self.options.unlock, self.connection.pool()) {
            (Unlock::Watch, Some(pool)) => {
                let limit = self.connection.config().request_limit;
                // Boxed, so that a release by script does not carry its size.
                Some(Box::pin(watch::unlock(pool, limit, &key, &value, &channel)).await)
            }
            (Unlock::Script | Unlock::Watch, _) => None,
        };
        // A full server lets no command into a transaction, not even DEL; but a script may delete there.
        let watched = watched.filter(|answer| !matches!(answer, Err(failure) if failure.is_server_code("EXECABORT")));
        let answer = match watched {
            Some(answer) => answer,
            None => {
                let args = [&*value, &channel, self.channel.publish()];
                self.connection.run(&script::TOKEN_RELEASE, &Call { keys: &[&key], args: &args }).await
            }
        };
        answer.map(answer::release).map_err(|failure| self.explain(&failure, operation, &claim.key))
    }
}

#[async_trait]
impl Backend for Token {
    fn name(&self) -> &str {
        strategy(self.options.unlock)
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            exclusion: Exclusion::WhileLeaseHolds,
            fencing: Fencing::ServerClock,
            fair: false,
            reentrant: false,
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
        let ttl = Ttl::new(claim.lease.ttl(), self.name(), "acquire")?;
        let key = self.key(&claim.key, "acquire")?;
        Ok(answer::granted(self.attempt(claim, &ttl, &key).await?))
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        let ttl = Ttl::new(claim.lease.ttl(), self.name(), "acquire")?;
        let key = self.key(&claim.key, "acquire")?;
        let channel = || keys::sibling(RELEASED, &key);
        self.channel.wait(&self.connection, channel, stop, || self.attempt(claim, &ttl, &key)).await
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        let prepared: Vec<Result<_>> = batch
            .iter()
            .map(|renew| {
                let claim = &renew.grant.claim;
                let ttl = Ttl::new(renew.ttl, self.name(), "renew")?;
                let key = self.key(&claim.key, "renew")?;
                let fence = keys::sibling(FENCE, &key);
                Ok((claim, ttl, key, fence, keys::of_claim(claim)))
            })
            .collect();
        let lists: Vec<_> = prepared
            .iter()
            .flatten()
            .map(|(_, ttl, key, fence, value)| ([&**key, fence], [&**value, &ttl.millis, &ttl.fence_millis]))
            .collect();
        let calls: Vec<_> = lists.iter().map(|(keys, args)| Call { keys, args }).collect();
        let sent_at = Moment::now();
        let answers = match &self.options.min_replicas {
            None => self.connection.run_all(&script::TOKEN_RENEW, &calls).await,
            Some(min_replicas) => Box::pin(min_replicas.run(&self.connection, &script::TOKEN_RENEW, &calls)).await,
        };
        let mut answers = answers.into_iter();
        drop(calls);
        prepared
            .into_iter()
            .map(|prepared| {
                let (claim, ttl, ..) = prepared?;
                match answers.next().expect("there is an answer to each call") {
                    Ok(answer) => answer::renewal(answer, sent_at, &ttl, self.name(), &claim.key),
                    Err(failure) => Err(self.explain(&failure, "renew", &claim.key)),
                }
            })
            .collect()
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        self.unlock(&grant.claim, "release").await
    }

    async fn abandon(&self, claim: &Claim) -> Result<Undone> {
        // A request that was delayed in the network may still land: nothing that is sent now can tell.
        self.unlock(claim, "abandon").await.map(|_| Undone::MayStillLand)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection> {
        let redis_key = self.key(key, "inspect")?;
        let mut pipeline = redis::pipe();
        pipeline.cmd("GET").arg(&redis_key).cmd("PTTL").arg(&redis_key);
        pipeline.cmd("GET").arg(keys::sibling(FENCE, &redis_key));
        pipeline.cmd("PUBSUB").arg(self.channel.count()).arg(keys::sibling(RELEASED, &redis_key));
        type Found =
            (RedisResult<Option<Vec<u8>>>, RedisResult<i64>, RedisResult<Option<u64>>, RedisResult<(String, u64)>);
        let found: Result<Found, Failure> = self.connection.pipeline(pipeline.ignore_errors()).await;
        let (value, remaining, token, waiters) = found.map_err(|failure| self.explain(&failure, "inspect", key))?;
        let mut inspection = Inspection::default();
        // Those who poll cannot be counted.
        inspection.waiters = waiters.ok().filter(|_| self.channel.pushes()).map(|(_, waiters)| waiters);
        let value = value.map_err(|error| self.explain(&error.into(), "inspect", key))?;
        let Some(value) = value.map(|value| String::from_utf8_lossy(&value).into_owned()) else {
            return Ok(inspection);
        };
        inspection.held = true;
        inspection.remaining = remaining.ok().and_then(answer::remaining);
        match ours(&value) {
            Some((claim, label)) => {
                inspection.label = label.map(ToOwned::to_owned);
                inspection.holder = Some(claim.to_owned());
                inspection.fencing_token = token.ok().flatten().map(FencingToken::new);
            }
            // A lock of another library: the last token is not its own.
            None => inspection.holder = Some(value),
        }
        Ok(inspection)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockKey>> {
        if self.options.prefix.is_empty() {
            let says = "without a prefix, locks cannot be told from other keys; set one in `TokenOptions`";
            return Err(Error::new(ErrorKind::Unsupported, Effect::None, self.name(), "list", says));
        }
        let pattern = keys::beginning_with(&format!("{}{prefix}", self.options.prefix));
        let found = listing::scan(&self.connection, &pattern, "string").await;
        let found = found.map_err(|failure| explain(&failure, self.name(), "list"))?;
        let locks = found.iter().filter(|key| !is_reserved(key));
        // What is no valid name cannot be a lock of ours.
        Ok(locks.filter_map(|key| LockKey::new(key.strip_prefix(&self.options.prefix)?).ok()).collect())
    }

    async fn force_release(&self, key: &LockKey) -> Result<Release> {
        let redis_key = self.key(key, "force_release")?;
        let channel = self.channel_of(&redis_key);
        let call = Call { keys: &[&redis_key], args: &[&channel, self.channel.publish()] };
        let answer = self.connection.run(&script::FORCE_RELEASE, &call).await;
        answer.map(answer::release).map_err(|failure| self.explain(&failure, "force_release", key))
    }

    async fn close(&self) -> Result<()> {
        // Nothing is kept for a lock but the entry itself, and subscriptions end with their waiters.
        Ok(())
    }
}

/// Whether a key belongs to some lock but is none.
fn is_reserved(key: &str) -> bool {
    [FENCE, RELEASED].iter().any(|namespace| key.strip_prefix(namespace).is_some_and(|rest| rest.starts_with(':')))
}

const fn strategy(unlock: Unlock) -> &'static str {
    match unlock {
        Unlock::Script => "redis-token",
        Unlock::Watch => "redis-token-watch",
    }
}

/// The claim and the label of a value that this crate has written.
fn ours(value: &str) -> Option<(&str, Option<&str>)> {
    let (claim, label) = value.split_once(':').map_or((value, None), |(claim, label)| (claim, Some(label)));
    (claim.len() == 32 && claim.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some((claim, label))
}
