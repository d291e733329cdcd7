use std::sync::Arc;

use async_trait::async_trait;
use etcd_client::{Client, ConnectOptions, GetOptions, PutOptions, Txn, TxnOp};
use lock_core::{
    Backend, Claim, Error, Exclusion, Expiry, Fencing, FencingToken, Grant, Guarantees, Inspection, LockKey,
    NodeFailure, OwnerCheck, Release, Renew, Renewal, Result, Stop, Undone, WakeUp,
};

use crate::Config;
use crate::endpoints::Endpoints;
use crate::error::{Failure, NAME, explain, invalid};
use crate::keys::{self, Layout};
use crate::lease::Hold;
use crate::leases::{self, Leases, before_the_claim, own_id, whole_seconds};
use crate::places::Places;
use crate::queue::{Spot, Standing, delete};
use crate::renewal::hold;
use crate::turn::Turn;

/// How often a claim is tried under a new lease, because the one that it was to use had ended.
const LEASES_TRIED: u32 = 3;

/// A queue of keys in etcd, each under a lease, in the order of their create revisions.
///
/// It does its own transactions. The server's Lock service is not used: in etcd 3.4 it can grant one lock to two clients.
///
/// # Keys
///
/// `<prefix><name>/<client>` holds a client's place in the lock's queue; a second claim of the same client has
/// `<prefix><name>/<lease>-<claim>`. All are in hex, and the value is the claim, and `:label` if there is one. The key of the smallest create revision holds the lock, and that revision is the fencing token. Go's `concurrency.Mutex`, `etcdctl
/// lock` and the Lock service keep the same order under the same names, so all exclude each other. `<prefix>%leases/...` has a
/// key per lease, by which a client learns that the lease has ended; `<prefix>%undone/...` has one for each claim that was
/// given up while a request of it was on its way, for as long as its lease lives. A user needs readwrite on the prefix.
///
/// # Leases
///
/// Renewed grants of one ttl share one lease, the session: if it is revoked, all of them are lost at once, and are told so. A
/// fixed grant has a lease of its own. A ttl is counted in whole seconds, rounded up, and the server grants no less than one
/// and a half times its election time: 2 s with its defaults.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> lock_core::Result<()> {
/// use lock_core::Locks;
/// use lock_etcd::Etcd;
///
/// let locks = Locks::new(Etcd::connect(["http://10.0.0.1:2379", "http://10.0.0.2:2379", "http://10.0.0.3:2379"])?);
/// let guard = locks.lock("orders/42")?.acquire().await?;
/// println!("fencing token: {:?}", guard.fencing_token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Etcd {
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) layout: Layout,
    pub(crate) leases: Arc<Leases>,
    places: Arc<Places>,
}

impl Etcd {
    /// Keeps locks in the cluster whose members are at `endpoints`, such as `http://127.0.0.1:2379`, with the defaults. No
    /// I/O: it connects on first use.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is no endpoint.
    pub fn connect<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Result<Self> {
        // A ping is answered by a member that is up; etcd ends connections that ping more often than every 5 s.
        let ping = std::time::Duration::from_secs(10);
        let options = ConnectOptions::new()
            .with_keep_alive(ping, ping / 2)
            .with_keep_alive_while_idle(false)
            .with_tcp_keepalive(ping);
        Self::connect_with(endpoints, options, Config::new())
    }

    /// The same with options: the client's (user and password, TLS, connections) and ours.
    ///
    /// There will be a client for each endpoint, because one client over all of them would send a share of the requests to a
    /// member that is down. A member without a leader is asked to say so (`with_require_leader`), and an expired token is
    /// replaced (`with_auto_token_refresh`), whatever `options` say.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for no endpoint, a limit of zero, or a prefix with control characters.
    pub fn connect_with<E: Into<String>>(
        endpoints: impl IntoIterator<Item = E>,
        options: ConnectOptions,
        config: Config,
    ) -> Result<Self> {
        let urls: Vec<String> = endpoints.into_iter().map(Into::into).collect();
        if urls.is_empty() {
            return Err(invalid("connect", "there is no endpoint; name one at least, such as http://127.0.0.1:2379"));
        }
        let options = options.with_require_leader(true).with_auto_token_refresh(true);
        Self::new(Endpoints::open(urls, &options, config.request_limit), config)
    }

    /// Keeps locks over a client that the program already has. It should have one endpoint, and `with_require_leader`: see
    /// [`connect_with`](Etcd::connect_with). Its connection ends with the runtime that it was made on.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a limit of zero, or a prefix with control characters.
    pub fn from_client(client: &Client, config: Config) -> Result<Self> {
        Self::new(Endpoints::given(client, config.request_limit), config)
    }

    fn new(endpoints: Endpoints, config: Config) -> Result<Self> {
        if config.request_limit.is_zero() {
            return Err(invalid(
                "connect",
                "`request_limit` is zero; give it a duration of at least a few milliseconds",
            ));
        }
        let (endpoints, layout) = (Arc::new(endpoints), Layout::new(config)?);
        let leases = Arc::new(Leases::new(Arc::clone(&endpoints), layout.clone()));
        Ok(Self { endpoints, layout, leases, places: Arc::default() })
    }

    /// Takes a place in the queue, or the lock; under a new lease if the one that was to be used had ended.
    async fn enter<'a>(
        &'a self,
        claim: &'a Claim,
        queue: &'a str,
        seconds: i64,
        how: How,
    ) -> Result<(Spot<'a>, Standing)> {
        let mut tried = 0;
        loop {
            let lease = self.leases.of(claim, seconds).await.map_err(|failure| before_the_claim(failure, "acquire"))?;
            let choice = self.places.choose(queue, claim.id);
            let spot = Spot::new(&self.leases, &self.endpoints, &self.layout, claim, queue, lease, choice);
            tried += 1;
            match self.enter_once(&spot, how).await {
                Ok(Standing::Undone) => return Err(spot.undone()),
                Ok(Standing::Gone) if tried < LEASES_TRIED => {}
                Ok(Standing::Taken) if tried < LEASES_TRIED => spot.choice.go_apart(),
                Ok(standing) => return Ok((spot, standing)),
                Err(Failure::LeaseGone) if tried < LEASES_TRIED => self.leases.lose(&spot.lease),
                Err(failure) if failure.had_no_effect() => return Err(explain(failure, "acquire")),
                Err(failure) => return Err(spot.undecided(failure)),
            }
        }
    }

    async fn enter_once(&self, spot: &Spot<'_>, how: How) -> Result<Standing, Failure> {
        let entering = async {
            match how {
                How::IfFree => spot.try_enter().await,
                How::Queue => spot.enter().await,
            }
        };
        let lease = &spot.lease;
        if lease.may_have_ended() {
            // Nobody has used it for a while.
            self.leases.keep_alive(lease).await?;
        } else if lease.due_at().remaining().is_zero() {
            let (standing, kept) = tokio::join!(entering, self.leases.keep_alive(lease));
            return match kept {
                Err(Failure::LeaseGone) => Err(Failure::LeaseGone),
                // The grant counts from the last one that was answered, and the keeper tries again.
                Ok(()) | Err(_) => standing,
            };
        }
        entering.await
    }

    /// Whether the lock is held by another claim than this one of ours, as far as one look tells.
    async fn is_anothers(&self, claim: &Claim, queue: &str, seconds: i64) -> Result<bool> {
        let first = self.first(queue).await.map_err(|failure| before_the_claim(failure, "acquire"))?;
        let ours =
            [keys::common_place(queue, &self.leases.instance), keys::place(queue, own_id(claim.id, seconds), claim.id)];
        let is_ours = |key: &[u8]| ours.iter().any(|ours| ours.as_bytes() == key);
        Ok(first.kvs().first().is_some_and(|first| !is_ours(first.key()) || !keys::is_of(claim.id, first.value())))
    }

    /// Makes a grant of being first. A ttl that runs since long is restarted.
    async fn grant(&self, spot: Spot<'_>, revision: i64, restart: bool) -> Result<Grant> {
        if restart && let Err(failure) = self.leases.keep_alive(&spot.lease).await {
            return Err(spot.undecided(failure));
        }
        let Ok(token) = u64::try_from(revision) else {
            return Err(spot.undecided(Failure::Answer("a revision below zero")));
        };
        let Spot { claim, key, lease, choice, .. } = spot;
        let (sent_at, ttl) = (lease.alive_at(), lease.granted);
        let hold = Hold::new(claim.id, key, revision, lease, choice);
        let signal = hold.signal.clone();
        Ok(Grant::new(claim.clone(), sent_at, ttl)
            .with_fencing_token(FencingToken::new(token))
            .with_loss_signal(signal)
            .with_state(Arc::new(hold)))
    }

    /// Keeps requests of the claim under this lease from landing. Without the lease none can.
    async fn bury(&self, claim: &Claim, lease: i64) -> Result<(), Failure> {
        let tombstone = self.layout.tombstone(lease, claim.id);
        let put = TxnOp::put(tombstone, "", Some(PutOptions::new().with_lease(lease)));
        match self.endpoints.txn(Txn::new().and_then([put])).await {
            Ok(_) => self.leases.note_tombstone(lease),
            Err(Failure::LeaseGone) => {}
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// First no request can land any more; then what has landed is deleted.
    async fn undo(&self, queue: &str, claim: &Claim, seconds: i64) -> Result<(), Failure> {
        let named = self.leases.that_may_hold(claim, seconds);
        for lease in &named {
            self.bury(claim, *lease).await?;
        }
        let queued = self.endpoints.get(queue.as_bytes(), GetOptions::new().with_prefix()).await?;
        for found in queued.kvs().iter().filter(|kv| keys::is_of(claim.id, kv.value())) {
            // It may be of another client, which has named a lease that we do not know.
            if found.lease() != 0 && !named.contains(&found.lease()) {
                self.bury(claim, found.lease()).await?;
            }
            delete(&self.endpoints, found.key(), found.create_revision()).await?;
        }
        self.places.free(queue, claim.id);
        Ok(())
    }
}

/// How a claim enters the queue.
#[derive(Clone, Copy, Debug)]
enum How {
    /// Only if nobody is in it.
    IfFree,
    /// At its end.
    Queue,
}

#[async_trait]
impl Backend for Etcd {
    fn name(&self) -> &str {
        NAME
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            exclusion: Exclusion::WhileLeaseHolds,
            fencing: Fencing::Consensus,
            fair: true,
            reentrant: false,
            idempotent_acquire: true,
            release_check: OwnerCheck::Atomic,
            renew_check: OwnerCheck::Atomic,
            frees_after_crash: true,
            trusts_client_clock: false,
            wake_up: WakeUp::Queue,
            node_failure: NodeFailure::SurvivesMinority,
            expiry: Expiry::Session,
            min_ttl: leases::MIN_TTL,
            ttl_step: leases::MIN_TTL,
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        let seconds = whole_seconds(claim.lease.ttl(), "acquire").map_err(|error| error.with_key(&claim.key))?;
        let queue = self.layout.queue(&claim.key, "acquire")?;
        let keyed = |error: Error| error.with_key(&claim.key);
        if !claim.lease.is_renewed() && self.is_anothers(claim, &queue, seconds).await.map_err(keyed)? {
            // Before a lease is made for nothing.
            return Ok(None);
        }
        let (spot, standing) = self.enter(claim, &queue, seconds, How::IfFree).await.map_err(keyed)?;
        match standing {
            Standing::First { revision, again } => self.grant(spot, revision, again).await.map(Some),
            Standing::Behind { revision, .. } => {
                // An earlier request of this claim had queued.
                spot.leave(revision).await.map_err(|failure| spot.undecided(failure))?;
                Ok(None)
            }
            Standing::Outside | Standing::Gone | Standing::Undone | Standing::Taken => {
                self.leases.end_own(&spot.lease).await;
                Ok(None)
            }
        }
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        let seconds = whole_seconds(claim.lease.ttl(), "acquire").map_err(|error| error.with_key(&claim.key))?;
        let queue = self.layout.queue(&claim.key, "acquire")?;
        let entered = self.enter(claim, &queue, seconds, How::Queue).await;
        let (spot, standing) = entered.map_err(|error| error.with_key(&claim.key))?;
        if let Standing::First { revision, again } = standing {
            return self.grant(spot, revision, again).await.map(Some);
        }
        stop.report_waiting();
        match spot.wait(standing, stop).await {
            Ok(Turn::Ours(revision)) => {
                // A lease of its own gets its full ttl again now that it counts.
                let restart = !spot.lease.is_session;
                self.grant(spot, revision, restart).await.map(Some)
            }
            Ok(Turn::GivenUp) => Ok(None),
            Ok(Turn::Gone) | Err(Failure::LeaseGone) => {
                Err(explain(Failure::LeaseGone, "acquire").with_key(&claim.key))
            }
            Err(failure) => Err(spot.undecided(failure)),
        }
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        self.leases.ensure_watch();
        self.renew_all(batch).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        let hold = hold(grant, "release")?;
        let deleted = delete(&self.endpoints, hold.key.as_bytes(), hold.revision).await;
        let deleted = deleted.map_err(|failure| explain(failure, "release").with_key(&grant.claim.key))?;
        hold.choice.free();
        self.leases.end_own(&hold.lease()).await;
        Ok(if deleted { Release::Released } else { Release::NotHeld })
    }

    /// Settled for every claim whose requests came from this object.
    async fn abandon(&self, claim: &Claim) -> Result<Undone> {
        let queue = self.layout.queue(&claim.key, "abandon")?;
        let seconds = whole_seconds(claim.lease.ttl(), "abandon").map_err(|error| error.with_key(&claim.key))?;
        let undone = self.undo(&queue, claim, seconds).await;
        undone.map(|()| Undone::Settled).map_err(|failure| explain(failure, "abandon").with_key(&claim.key))
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection> {
        self.look_at(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockKey>> {
        self.list_all(prefix).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Release> {
        self.force(key).await
    }

    async fn close(&self) -> Result<()> {
        self.leases.close().await
    }
}
