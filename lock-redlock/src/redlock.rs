mod acquisition;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_core::{
    Backend, Claim, Effect, Error, ErrorKind, Exclusion, Expiry, Fencing, Grant, Guarantees, Inspection, LockKey,
    Moment, NodeFailure, OwnerCheck, Release, Renew, Renewal, Result, Stop, Undone, WakeUp,
};
use lock_redis::{Config, Connection, Ttl};

use self::acquisition::Won;
use crate::RedlockOptions;
use crate::ask::{self, Calls, SharedRound, Tally};
use crate::entry::{Entry, Names};
use crate::error::explain;
use crate::lease::valid_until;
use crate::node::Node;
use crate::round::{Question, Round, Verdict, majority};
use crate::sight;
use crate::stragglers::Stragglers;

/// A lock on a majority of independent Redis nodes: the algorithm of redis.io's "Distributed Locks with Redis".
///
/// # How it works
///
/// A round asks every node at once to set the lock's key, if it is free, to a value that only this claim knows. A majority
/// of yes within the lease's validity is the lock; anything else is undone, on every node where it may have had an effect.
/// The lease is renewed by a majority that still has it, and released on all nodes. A waiter tries again after a random
/// pause. One node is waited for no longer than [`node_limit`](field@RedlockOptions::node_limit), and a round ends as soon as no answer that
/// is still awaited could change it.
///
/// # What it gives
///
/// It works while a majority of nodes answers: one of three may be down, or two of five. An even number works and is no
/// better than one node less. Two holders exclude each other until their deadlines, as long as
///
/// - no node forgets a lock that it has granted: no restart without `appendfsync always` that comes back within a ttl, no
///   eviction, no replica that takes its place (S36, S37, S38). If nodes 1, 2 and 3 of five gave A the lock and node 3
///   restarts empty, nodes 3, 4 and 5 may give it to B;
/// - no node's wall clock jumps, because Redis expires keys by it (S15);
/// - the clocks of nodes and clients run equally fast, to 1 %.
///
/// Nodes with replicas that are failed over to are not independent; take single nodes.
///
/// # The debate
///
/// Kleppmann ("How to do distributed locking", 2016) objects that it depends on these timing assumptions although it looks
/// like a consensus algorithm, that a holder that is paused after its check writes all the same, and that it has no fencing
/// token to stop it there; for efficiency he advises a single Redis, for correctness a system of consensus. Antirez ("Is
/// Redlock safe?", 2016) answers that a pause or delay before the check is caught by the validity, that later ones hit
/// every lock with a lease, that a resource which can check tokens needs a lock less, and that clocks can be kept from
/// jumping. Both are right about what they say: take this lock where a double hold costs work and not data, and one Redis
/// is too little; take `lock-etcd` or `lock-zookeeper` and check their tokens where it must really hold.
///
/// # Fencing tokens
///
/// Plain, it has none: the counters of several nodes disagree. [`fenced`](Redlock::fenced) mints one in a second round.
///
/// # Keys
///
/// `<prefix><name>` on each node holds `<claim in hex>:<round>[:label]` and lives as long as the lease. With fencing,
/// `hasp-redlock-fence:<prefix><name>` holds the last token and the claim that put it down, and outlives the lock by a day.
/// An ACL user needs `~<prefix>* ~hasp-redlock-fence:*` and the commands EVALSHA, EVAL, SCRIPT, GET, SET, DEL, PTTL, PEXPIRE,
/// TIME (to list: SCAN; INFO is asked at connect).
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> lock_core::Result<()> {
/// use lock_core::Locks;
/// use lock_redlock::Redlock;
///
/// let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
/// let locks = Locks::new(Redlock::connect(nodes).await?);
/// let guard = locks.lock("orders/42")?.acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Redlock {
    nodes: Arc<[Node]>,
    options: RedlockOptions,
    fenced: bool,
    /// The number of the last round. It grows over all rounds, so that an old one's undoing leaves a newer one alone.
    rounds: AtomicU64,
    stragglers: Stragglers,
}

impl Redlock {
    /// Connects to the nodes at `urls`, with the defaults; see [`Connection::open`] for the forms of a URL.
    ///
    /// # Errors
    ///
    /// As for [`open`](Redlock::open).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is kept.
    pub async fn connect<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self> {
        let urls: Vec<_> = urls.into_iter().map(|url| url.as_ref().to_owned()).collect();
        Self::open(&urls, Config::new(), RedlockOptions::new()).await
    }

    /// Connects to the nodes at `urls`. A minority may be away; each of those is connected to when it is there.
    ///
    /// `config` is for each node's connection. Its limit per request ends calls that a round no longer waits for, so it may
    /// be above [`node_limit`](field@RedlockOptions::node_limit).
    ///
    /// # Errors
    ///
    /// `InvalidInput` without a URL, for two that are equal, or for wrong options; `Unavailable` if no majority can be
    /// reached; and whatever else [`Connection::open`] says of any node.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is kept.
    pub async fn open<U: AsRef<str> + Sync>(urls: &[U], config: Config, options: RedlockOptions) -> Result<Self> {
        let urls: Vec<_> = urls.iter().map(AsRef::as_ref).collect();
        if (1..urls.len()).any(|at| urls[..at].contains(&urls[at])) {
            return Err(invalid("a URL is there twice, and one node has one vote; name each node once"));
        }
        let redlock = Self::of(urls.iter().map(|url| Node::at(url, config.clone())).collect(), options)?;
        let tried = join_all(redlock.nodes.iter().map(Node::connection)).await;
        let mut failures = Vec::new();
        for error in tried.into_iter().filter_map(Result::err) {
            if error.kind() != ErrorKind::Unavailable {
                return Err(error);
            }
            tracing::warn!(%error, "a node of Redlock is away; it is connected to when it is there");
            failures.push(error);
        }
        let connected = urls.len() - failures.len();
        if connected < majority(urls.len()) {
            let tally = Tally { verdict: Verdict::Failed, yes: vec![(); connected], no: 0, failures };
            let error = explain(&tally, urls.len(), config.request_limit, "redlock", "connect");
            return Err(error.with_effect(Effect::None));
        }
        Ok(redlock)
    }

    /// Keeps locks over connections that the program already has, one per node. Each must lead to another server.
    ///
    /// # Errors
    ///
    /// `InvalidInput` without a connection, or for wrong options.
    pub fn new(nodes: impl IntoIterator<Item = Connection>, options: RedlockOptions) -> Result<Self> {
        Self::of(nodes.into_iter().map(Node::over).collect(), options)
    }

    /// The same locks with fencing tokens, at the cost of a second round.
    ///
    /// Each node that gives its vote also tells its last token and its clock. The token is the greater of the majority's
    /// greatest last plus one and its greatest clock, in microseconds; it is put down on the nodes where the lock is still
    /// this claim's and no other claim has got as far. That needs a majority too, and the validity is checked again; else the
    /// lock is given back.
    ///
    /// Tokens grow from one grant to the next if a node of both majorities kept its data, *or* if the time between the two
    /// mints exceeds the largest difference between the nodes' clocks and no clock steps back. If neither holds, a token may
    /// be smaller than the one before it. A lost node that stays out for longer than that difference takes part in no such
    /// case. Two holders at once, which the faults above can bring about, never have tokens of which the later minted is
    /// not the greater, as long as one node of both majorities kept its data.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.fenced = true;
        self
    }

    fn of(nodes: Vec<Node>, options: RedlockOptions) -> Result<Self> {
        options.check()?;
        if nodes.is_empty() {
            return Err(invalid("there is no node; name at least one, and better three or five"));
        }
        let (rounds, stragglers) = (AtomicU64::new(0), Stragglers::default());
        Ok(Self { nodes: nodes.into(), options, fenced: false, rounds, stragglers })
    }

    fn names(&self, key: &LockKey, operation: &'static str) -> Result<Names> {
        Names::new(&self.options.prefix, key, self.fenced, self.name(), operation)
    }

    fn entry(&self, claim: &Claim, operation: &'static str) -> Result<Arc<Entry>> {
        Ok(Arc::new(Entry::new(self.names(&claim.key, operation)?, claim)))
    }

    /// A call to each node, made by `call`.
    fn calls<T, F>(&self, call: impl Fn(Arc<[Node]>, usize) -> F) -> Calls<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let one = |at| call(Arc::clone(&self.nodes), at).map(move |answer| (at, answer)).boxed();
        (0..self.nodes.len()).map(one).collect()
    }

    /// Puts a question about a lock that is ours to all nodes.
    async fn ask<T: Send + 'static>(
        &self,
        limit: Duration,
        valid_until: Option<Moment>,
        mut calls: Calls<Option<T>>,
    ) -> Tally<T> {
        let limit = Moment::now().saturating_add(limit);
        let round = SharedRound::new(Round::new(Question::Ours, self.nodes.len(), limit, valid_until));
        let tally = ask::ask(&round, &mut calls).await;
        self.run_out(calls);
        tally
    }

    fn too_late(&self, operation: &'static str, ttl: Duration) -> Error {
        let says =
            format!("a majority answered after the lease of {ttl:?} had ended; use a longer ttl or nearer nodes");
        Error::new(ErrorKind::Unavailable, Effect::Unknown, self.name(), operation, says)
    }

    fn run_out<T: Send + 'static>(&self, calls: Calls<T>) {
        if !calls.is_empty() {
            self.stragglers.spawn(ask::run_out(calls));
        }
    }

    /// Deletes the claim's key on every node. Each answers whether it was there, and `vote` makes its vote of that.
    async fn release_all(
        &self,
        claim: &Claim,
        ttl: Duration,
        operation: &'static str,
        vote: fn(Option<()>) -> Option<()>,
    ) -> Result<(Tally<()>, Duration)> {
        let entry = self.entry(claim, operation)?;
        let limit = self.options.node_limit(ttl);
        let calls = self.calls(|nodes, at| {
            let entry = Arc::clone(&entry);
            async move { nodes[at].release(&entry, None, operation).await.map(vote) }
        });
        Ok((self.ask(limit, None, calls).await, limit))
    }

    /// What the nodes say that answer within the limit, of which there must be a majority.
    async fn look<T: Send + 'static>(&self, operation: &'static str, mut calls: Calls<T>) -> Result<Vec<T>> {
        let limit = self.options.look_limit();
        let answers = ask::gather(Moment::now().saturating_add(limit), &mut calls).await;
        self.run_out(calls);
        let (mut said, mut failures) = (Vec::new(), Vec::new());
        for answer in answers {
            match answer {
                Ok(one) => said.push(one),
                Err(error) => failures.push(error),
            }
        }
        if said.len() >= majority(self.nodes.len()) {
            return Ok(said);
        }
        let tally = Tally { verdict: Verdict::Failed, yes: said, no: 0, failures };
        Err(explain(&tally, self.nodes.len(), limit, self.name(), operation).with_effect(Effect::None))
    }
}

#[async_trait]
impl Backend for Redlock {
    fn name(&self) -> &str {
        if self.fenced { "redlock-fenced" } else { "redlock" }
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            exclusion: Exclusion::WhileLeaseHolds,
            fencing: if self.fenced { Fencing::ServerClock } else { Fencing::None },
            fair: false,
            reentrant: false,
            idempotent_acquire: true,
            release_check: OwnerCheck::Atomic,
            renew_check: OwnerCheck::Atomic,
            frees_after_crash: true,
            trusts_client_clock: false,
            wake_up: WakeUp::Poll,
            node_failure: NodeFailure::SurvivesMinority,
            expiry: Expiry::Entry,
            min_ttl: Ttl::MIN,
            ttl_step: Ttl::STEP,
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        let ttl = Ttl::new(claim.lease.ttl(), self.name(), "acquire")?;
        let entry = self.entry(claim, "acquire")?;
        self.attempt(claim, &ttl, &entry).await
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        let ttl = Ttl::new(claim.lease.ttl(), self.name(), "acquire")?;
        let entry = self.entry(claim, "acquire")?;
        // Not `lock_core::wait::poll`: those who split the votes need pauses that differ by more than its jitter.
        loop {
            if let Some(grant) = self.attempt(claim, &ttl, &entry).await? {
                return Ok(Some(grant));
            }
            stop.report_waiting();
            tokio::select! {
                biased;
                () = stop.fired() => return Ok(None),
                () = tokio::time::sleep(self.options.retry_delay()) => {}
            }
        }
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        let prepared: Vec<Result<_>> = batch
            .iter()
            .map(|renew| {
                let ttl = Ttl::new(renew.ttl, self.name(), "renew")?;
                let names = self.names(&renew.grant.claim.key, "renew")?;
                let round = Won::of(renew.grant).map_or(0, |won| won.number);
                Ok((Entry::new(names, &renew.grant.claim), round, ttl))
            })
            .collect();
        let items: Arc<[_]> = prepared.iter().flatten().cloned().collect();
        let nodes = self.nodes.len();
        let sent_at = Moment::now();
        let round = |(.., ttl): &(Entry, u64, Ttl)| {
            let limit = sent_at.saturating_add(self.options.node_limit(ttl.given));
            Round::new(Question::Ours, nodes, limit, Some(valid_until(ttl, sent_at)))
        };
        let rounds: Vec<_> = items.iter().map(round).collect();
        let mut calls = self.calls(|nodes, at| {
            let items = Arc::clone(&items);
            async move { Ok(nodes[at].renew(&items).await) }
        });
        let mut tallies = ask::ask_batch(rounds, &mut calls).await.into_iter();
        self.run_out(calls);
        let answers = prepared.into_iter().zip(batch).map(|(prepared, renew)| {
            let (.., ttl) = prepared?;
            let tally = tallies.next().expect("there is a tally for each item");
            let error = match tally.verdict {
                Verdict::Won => return Ok(Renewal::new(sent_at, ttl.given)),
                Verdict::TooLate => self.too_late("renew", ttl.given),
                Verdict::Failed => {
                    explain(&tally, nodes, self.options.node_limit(ttl.given), self.name(), "renew")
                }
                Verdict::Refused => {
                    let says = "a majority of the nodes no longer has the lock for this claim: it expired, or was taken \
                                away; stop the work that it guards";
                    Error::new(ErrorKind::Lost, Effect::None, self.name(), "renew", says)
                }
            };
            Err(error.with_key(&renew.grant.claim.key))
        });
        answers.collect()
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        // A vote that arrives from now on is undone by its own round.
        if let Some(won) = Won::of(grant) {
            won.round.lock().give_back();
        }
        let (tally, limit) = self.release_all(&grant.claim, grant.ttl, "release", |was_there| was_there).await?;
        match tally.verdict {
            Verdict::Won => Ok(Release::Released),
            Verdict::Refused => Ok(Release::NotHeld),
            Verdict::Failed | Verdict::TooLate => {
                let error = explain(&tally, self.nodes.len(), limit, self.name(), "release");
                Err(error.with_key(&grant.claim.key))
            }
        }
    }

    async fn abandon(&self, claim: &Claim) -> Result<Undone> {
        // A yes: there is nothing now, whether there was or not. A minority that could not be asked does not make a lock.
        let (tally, limit) = self.release_all(claim, claim.lease.ttl(), "abandon", |_| Some(())).await?;
        match tally.verdict {
            // A request that was delayed in the network may still land.
            Verdict::Won => Ok(Undone::MayStillLand),
            Verdict::Failed | Verdict::Refused | Verdict::TooLate => {
                Err(explain(&tally, self.nodes.len(), limit, self.name(), "abandon").with_key(&claim.key))
            }
        }
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection> {
        let names = Arc::new(self.names(key, "inspect")?);
        let calls = self.calls(|nodes, at| {
            let names = Arc::clone(&names);
            async move { nodes[at].inspect(&names).await }
        });
        let seen = self.look("inspect", calls).await.map_err(|error| error.with_key(key))?;
        sight::inspection(&seen, self.nodes.len()).ok_or_else(|| {
            let says = "the nodes that answer are not enough to tell whether it is held; look again when all are up";
            Error::new(ErrorKind::Unavailable, Effect::None, self.name(), "inspect", says).with_key(key)
        })
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockKey>> {
        if self.options.prefix.is_empty() {
            let says = "without a prefix, locks cannot be told from other keys; set one in `RedlockOptions`";
            return Err(Error::new(ErrorKind::Unsupported, Effect::None, self.name(), "list", says));
        }
        let prefix: Arc<str> = format!("{}{prefix}", self.options.prefix).into();
        let calls = self.calls(|nodes, at| {
            let prefix = Arc::clone(&prefix);
            async move { nodes[at].list(&prefix).await }
        });
        let found = self.look("list", calls).await?;
        let held = sight::listed(&found, self.nodes.len()).into_iter();
        // What is no key of ours cannot be a lock of ours.
        Ok(held.filter_map(|key| LockKey::new(key.strip_prefix(&self.options.prefix)?).ok()).collect())
    }

    async fn force_release(&self, key: &LockKey) -> Result<Release> {
        let names = Arc::new(self.names(key, "force_release")?);
        let limit = self.options.look_limit();
        let calls = self.calls(|nodes, at| {
            let names = Arc::clone(&names);
            async move { nodes[at].force_release(&names).await }
        });
        let tally = self.ask(limit, None, calls).await;
        match tally.verdict {
            Verdict::Won => Ok(Release::Released),
            Verdict::Refused => Ok(Release::NotHeld),
            // It is free on a majority now, and was held on some of it.
            Verdict::Failed if tally.yes.len() + tally.no >= majority(self.nodes.len()) => Ok(Release::Released),
            Verdict::Failed | Verdict::TooLate => {
                Err(explain(&tally, self.nodes.len(), limit, self.name(), "force_release").with_key(key))
            }
        }
    }

    async fn close(&self) -> Result<()> {
        // Connections end with their last clone; what is still being undone is waited for, each within its own limits.
        self.stragglers.ended().await;
        Ok(())
    }
}

fn invalid(says: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, Effect::None, "redlock", "connect", says)
}
