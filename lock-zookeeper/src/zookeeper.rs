use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use lock_core::{
    Backend, Claim, Effect, Error, ErrorKind, Exclusion, Expiry, Fencing, FencingToken, Grant, Guarantees, Inspection,
    Lease, LockKey, Moment, NodeFailure, OwnerCheck, Release, Renew, Renewal, Result, Stop, Undone, WakeUp,
};
use zookeeper_client::{Client, Connector, Error as ClientError};

use crate::error::{Failure, explain};
use crate::line::Line;
use crate::place::{self, Look, Place, Turn, delete, synced_line};
use crate::session::Session;
use crate::sessions::Sessions;
use crate::unsettled::Unsettled;
use crate::{Config, path};

const NAME: &str = "zookeeper";

/// The shortest ttl. A lease ends here by its own deadline and costs no request, so it is bounded by good sense only.
const MIN_TTL: Duration = Duration::from_millis(100);

/// The session's timeout unless the user brings a connector: what a crash costs, as with the default lease elsewhere.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);

/// How many locks are looked at together when they are listed.
const LISTED_AT_ONCE: usize = 256;

/// An ephemeral sequential node per claim, in line below the lock's path; the first in line has the lock: the recipe "Locks"
/// of `ZooKeeper`'s documentation, with a GUID in the node's name.
///
/// Waiters watch the node before their own and nothing else. Renewal is `sync` and the reads behind it; the session keeps the
/// nodes, and where it has ended, a new one is made for later claims while its grants are lost. Not re-entrant.
///
/// # Nodes
///
/// `<prefix>/<key>/<name><sequence>`, ephemeral; the key is one segment, in which every byte that is not a letter, a digit,
/// one of `-_~:@+=,;!` or a dot that does not lead is written `%XX`. [`Naming`](crate::Naming) says what the name is. The
/// node's data is the claim's label. The paths above it are made on demand: in Curator's naming as container nodes, which the
/// server removes when they are empty (3.5.1 and newer; else they are persistent and stay), in kazoo's as persistent ones,
/// because a kazoo `Lock` makes its path only once.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> lock_core::Result<()> {
/// use lock_core::Locks;
/// use lock_zookeeper::ZooKeeper;
///
/// let locks = Locks::new(ZooKeeper::connect("zk1:2181,zk2:2181,zk3:2181").await?);
/// let guard = locks.lock("orders/42")?.acquire().await?;
/// println!("fencing token: {:?}", guard.fencing_token());
/// guard.release().await?;
/// locks.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ZooKeeper {
    sessions: Sessions,
    config: Config,
    unsettled: Unsettled,
}

impl ZooKeeper {
    /// Connects to the servers of a connect string, such as `zk1:2181,zk2:2181,zk3:2181/chroot`, with the defaults and a
    /// session timeout of 30 s, or the nearest that the servers grant. A silent server is left after a fifth of that.
    ///
    /// # Errors
    ///
    /// As for [`from_connector`](ZooKeeper::from_connector).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a session that was made meanwhile ends with its timeout.
    pub async fn connect(hosts: &str) -> Result<Self> {
        let connector =
            Client::connector().with_session_timeout(SESSION_TIMEOUT).with_connection_timeout(SESSION_TIMEOUT / 5);
        Self::from_connector(connector, hosts, Config::new()).await
    }

    /// Connects by the user's own connector, which carries the session's timeout, credentials and TLS. It is used again for
    /// each new session, so it must not name a session, and it must not be detached (its locks would outlive
    /// [`close`](Backend::close)) or read-only.
    ///
    /// The longest lease is half of the session's timeout. The servers' tick must be at most half of it, which is what they
    /// grant unless told otherwise.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a prefix that is no path or a connect string that cannot be read, `Rejected` for credentials that
    /// are refused, and `Unavailable` if no server answers.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a session that was made meanwhile ends with its timeout.
    pub async fn from_connector(connector: Connector, hosts: impl Into<String>, config: Config) -> Result<Self> {
        if let Some(fault) = path::prefix_fault(&config.prefix) {
            let says = format!("the prefix `{}` cannot be used: {fault}", config.prefix);
            return Err(Error::new(ErrorKind::InvalidInput, Effect::None, NAME, "connect", says));
        }
        let zookeeper =
            Self { sessions: Sessions::new(connector, hosts.into()), config, unsettled: Unsettled::default() };
        zookeeper.session().await.map_err(|failure| explain(&failure, NAME, "connect"))?;
        Ok(zookeeper)
    }

    async fn session(&self) -> Result<Arc<Session>, Failure> {
        self.sessions.current(&self.config).await
    }

    /// Stands in line for the lock. A session that turns out to be over before anything was asked of it is replaced once.
    async fn enter(&self, claim: &Claim) -> Result<(Place, Look), Failure> {
        let session = self.session().await?;
        match self.enter_in(&session, claim).await {
            Err(failure) if failure.asks_for_another_session() => self.enter_in(&self.session().await?, claim).await,
            entered => entered,
        }
    }

    async fn enter_in(&self, session: &Arc<Session>, claim: &Claim) -> Result<(Place, Look), Failure> {
        check_fixed(claim.lease, claim.lease.ttl(), session)?;
        self.unsettled.ask(claim.id, session.id());
        Place::take(&self.config, session, claim).await
    }

    /// Makes a grant of a place that has the lock by a request sent at `sent_at`.
    async fn grant(&self, claim: &Claim, place: Place, sent_at: Moment) -> Result<Grant, Failure> {
        let (sent_at, ttl) = match vouch(&place.session, claim.lease, sent_at).await {
            Ok(proven) => proven,
            Err(failure) => return Err(failure.unsure()),
        };
        let token = u64::try_from(place.czxid).map_err(|_negative| Failure::NoZxid.unsure())?;
        let loss = place.session.loss().clone();
        Ok(Grant::new(claim.clone(), sent_at, ttl)
            .with_fencing_token(FencingToken::new(token))
            .with_loss_signal(loss)
            .with_state(Arc::new(place)))
    }

    async fn try_once(&self, claim: &Claim) -> Result<Option<Grant>, Failure> {
        let (place, look) = self.enter(claim).await?;
        if look.predecessor.is_some() {
            place.give_up().await.map_err(Failure::unsure)?;
            return Ok(None);
        }
        self.grant(claim, place, look.sent_at).await.map(Some)
    }

    async fn wait(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>, Failure> {
        let (place, look) = self.enter(claim).await?;
        match place.wait(&self.config, look, stop).await {
            Ok(Turn::Ours(sent_at)) => self.grant(claim, place, sent_at).await.map(Some),
            Ok(Turn::Stopped) => Ok(None),
            Err(failure) => Err(place.give_up_for(failure).await),
        }
    }

    /// What became of an attempt. One that is known to have left nothing, or what it says, is settled.
    fn conclude<T>(&self, claim: &Claim, was_asked: bool, outcome: Result<T, Failure>) -> Result<T> {
        let outcome = outcome.map_err(|failure| explain(&failure, NAME, "acquire").with_key(&claim.key));
        let known = outcome.as_ref().err().is_none_or(|error| error.effect() == Effect::None);
        if known && !was_asked {
            self.unsettled.settle(claim.id);
        }
        outcome
    }

    /// Renews the grants of one session: each counts from one `sync`.
    async fn renew_in(&self, session: &Session, batch: &[(Renew<'_>, &Place)]) -> Vec<Result<Renewal, Failure>> {
        match self.prove(session, batch).await {
            Ok(answers) => answers,
            Err(failure) => batch.iter().map(|_| Err(failure.clone())).collect(),
        }
    }

    async fn prove(
        &self,
        session: &Session,
        batch: &[(Renew<'_>, &Place)],
    ) -> Result<Vec<Result<Renewal, Failure>>, Failure> {
        let call = session.call().await?;
        let synced = call.client().sync("/");
        let found: Vec<_> = batch.iter().map(|(_, place)| call.client().check_stat(&place.path)).collect();
        let (synced, found) = call.replies(async { tokio::join!(synced, join_all(found)) }).await?;
        call.check(synced)?;
        let ttl = session.ttl(call.sent_at);
        let answers = batch.iter().zip(found).map(|((_, place), found)| match call.check(found) {
            Ok(Some(stat)) if stat.czxid == place.czxid => Ok(Renewal::new(call.sent_at, ttl)),
            Ok(_gone_or_another) => Err(Failure::Displaced),
            Err(failure) => Err(failure),
        });
        Ok(answers.collect())
    }

    async fn abandon_once(&self, claim: &Claim) -> Result<Undone, Failure> {
        let session = self.session().await?;
        let parent = place::parent(&self.config, &claim.key);
        let stem = self.config.naming.stem(claim.id);
        let call = session.call().await?;
        // A child of the other naming is no reason to leave ours behind.
        let synced = call.client().sync(&parent);
        let listed = call.client().list_children(&parent);
        let (synced, listed) = call.replies(async { tokio::join!(synced, listed) }).await?;
        call.check(synced)?;
        let children = match call.check(listed) {
            Err(Failure::Client(ClientError::NoNode)) => Vec::new(),
            listed => listed?,
        };
        for child in children.iter().filter(|child| child.starts_with(&stem)) {
            delete(&session, &format!("{parent}/{child}")).await?;
        }
        if !self.unsettled.is_of(claim.id, session.id()) {
            return Ok(Undone::MayStillLand);
        }
        self.unsettled.settle(claim.id);
        Ok(Undone::Settled)
    }

    async fn line_of(&self, session: &Session, key: &LockKey) -> Result<Option<Line>, Failure> {
        let call = session.call().await?;
        synced_line(&self.config, &call, &place::parent(&self.config, key)).await
    }

    async fn look_at(&self, key: &LockKey) -> Result<Inspection, Failure> {
        const TRIES: usize = 5;

        let session = self.session().await?;
        for _ in 0..TRIES {
            let line = self.line_of(&session, key).await?;
            let Some((line, first)) = line.as_ref().and_then(|line| Some((line, line.first()?))) else { break };
            let call = session.call().await?;
            let node = format!("{}/{first}", place::parent(&self.config, key));
            let (label, stat) = match call.reply(call.client().get_data(&node)).await {
                // Given back between the two; somebody else may have it now.
                Err(Failure::Client(ClientError::NoNode)) => continue,
                found => found?,
            };
            let mut inspection = Inspection::default();
            inspection.held = true;
            inspection.holder = Some(first.to_owned());
            inspection.label = String::from_utf8(label).ok().filter(|label| !label.is_empty());
            inspection.fencing_token = u64::try_from(stat.czxid).ok().map(FencingToken::new);
            inspection.waiters = u64::try_from(line.waiters()).ok();
            return Ok(inspection);
        }
        let mut inspection = Inspection::default();
        inspection.waiters = Some(0);
        Ok(inspection)
    }

    async fn held_keys(&self, prefix: &str) -> Result<Vec<LockKey>, Failure> {
        let session = self.session().await?;
        let root = if self.config.prefix.is_empty() { "/" } else { &self.config.prefix };
        let call = session.call().await?;
        let synced = call.client().sync(root);
        let listed = call.client().list_children(root);
        let (synced, listed) = call.replies(async { tokio::join!(synced, listed) }).await?;
        call.check(synced)?;
        let segments = match call.check(listed) {
            Err(Failure::Client(ClientError::NoNode)) => return Ok(Vec::new()),
            listed => listed?,
        };
        let keys = segments.iter().filter_map(|segment| path::key(segment));
        let keys: Vec<_> = keys.filter(|key| key.as_str().starts_with(prefix)).collect();
        let mut held = Vec::new();
        for keys in keys.chunks(LISTED_AT_ONCE) {
            let call = session.call().await?;
            let paths: Vec<_> = keys.iter().map(|key| place::parent(&self.config, key)).collect();
            let lines: Vec<_> = paths.iter().map(|path| call.client().list_children(path)).collect();
            for (key, line) in keys.iter().zip(call.replies(join_all(lines)).await?) {
                let children = match call.check(line) {
                    Err(Failure::Client(ClientError::NoNode)) => continue,
                    line => line?,
                };
                if children.iter().any(|child| self.config.naming.sequence(child).is_some()) {
                    held.push(key.clone());
                }
            }
        }
        Ok(held)
    }

    async fn free(&self, key: &LockKey) -> Result<Release, Failure> {
        let session = self.session().await?;
        let line = self.line_of(&session, key).await?;
        let Some(first) = line.as_ref().and_then(Line::first) else { return Ok(Release::NotHeld) };
        let path = format!("{}/{first}", place::parent(&self.config, key));
        Ok(released(delete(&session, &path).await.map_err(may_be_deleted)?))
    }
}

#[async_trait]
impl Backend for ZooKeeper {
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
            min_ttl: MIN_TTL,
            ttl_step: Duration::from_nanos(1),
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        check_range(claim.lease.ttl(), "acquire").map_err(|error| error.with_key(&claim.key))?;
        let was_asked = self.unsettled.is_asked(claim.id);
        let outcome = self.try_once(claim).await;
        self.conclude(claim, was_asked, outcome)
    }

    async fn acquire(&self, claim: &Claim, stop: &Stop) -> Result<Option<Grant>> {
        check_range(claim.lease.ttl(), "acquire").map_err(|error| error.with_key(&claim.key))?;
        let was_asked = self.unsettled.is_asked(claim.id);
        let outcome = self.wait(claim, stop).await;
        self.conclude(claim, was_asked, outcome)
    }

    async fn renew(&self, batch: &[Renew<'_>]) -> Vec<Result<Renewal>> {
        let mut answers: Vec<Option<Result<Renewal>>> = batch.iter().map(|_| None).collect();
        let mut sessions: HashMap<i64, (Vec<usize>, Vec<(Renew<'_>, &Place)>)> = HashMap::new();
        for (at, renew) in batch.iter().enumerate() {
            match renewable(renew) {
                Ok(place) => {
                    let (places, renewals) = sessions.entry(place.session.id()).or_default();
                    places.push(at);
                    renewals.push((*renew, place));
                }
                Err(error) => answers[at] = Some(Err(error)),
            }
        }
        let rounds = sessions.into_values().map(async |(places, renewals)| {
            let session = &renewals[0].1.session;
            (places, self.renew_in(session, &renewals).await)
        });
        for (places, renewals) in join_all(rounds).await {
            for (at, renewal) in places.into_iter().zip(renewals) {
                answers[at] = Some(renewal.map_err(|failure| renew_error(&failure, &batch[at])));
            }
        }
        answers.into_iter().map(|answer| answer.expect("each renewal is refused or sent")).collect()
    }

    async fn release(&self, grant: &Grant) -> Result<Release> {
        let error = |failure: &Failure| explain(failure, NAME, "release").with_key(&grant.claim.key);
        let place = place_of(grant).map_err(|failure| error(&failure))?;
        // Any session may delete the node, also if its own cannot any more.
        let session = self.session().await.map_err(|failure| error(&failure))?;
        let deleted = match delete(&session, &place.path).await {
            Err(failure) if failure.asks_for_another_session() => {
                let session = self.session().await.map_err(|failure| error(&failure))?;
                delete(&session, &place.path).await
            }
            deleted => deleted,
        };
        if deleted.is_ok() {
            place.note_gone();
        }
        deleted.map(released).map_err(|failure| error(&may_be_deleted(failure)))
    }

    async fn abandon(&self, claim: &Claim) -> Result<Undone> {
        self.abandon_once(claim).await.map_err(|failure| explain(&failure, NAME, "abandon").with_key(&claim.key))
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection> {
        self.look_at(key).await.map_err(|failure| explain(&failure, NAME, "inspect").with_key(key))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockKey>> {
        self.held_keys(prefix).await.map_err(|failure| explain(&failure, NAME, "list"))
    }

    async fn force_release(&self, key: &LockKey) -> Result<Release> {
        self.free(key).await.map_err(|failure| explain(&failure, NAME, "force_release").with_key(key))
    }

    async fn close(&self) -> Result<()> {
        self.sessions.close(&self.config).await.map_err(|failure| explain(&failure, NAME, "close"))
    }
}

/// What the session is proven to live, from the request that proves it. After a silence of the session a request proves next
/// to nothing; then another is sent when the first has been passed on to the leader (see `proof.rs`).
async fn vouch(session: &Session, lease: Lease, sent_at: Moment) -> Result<(Moment, Duration), Failure> {
    let soon = session.timeout() / 4;
    let ttl = session.ttl(sent_at);
    // A renewed lease gets more at its next renewal, and a fixed one must be as long as it says.
    let needed = if lease.is_renewed() { lease.ttl().min(soon) } else { lease.ttl() };
    if ttl >= needed {
        return Ok((sent_at, ttl));
    }
    tokio::time::sleep(sent_at.saturating_add(soon).remaining()).await;
    let call = session.call().await?;
    call.reply(call.client().sync("/")).await?;
    Ok((call.sent_at, session.ttl(call.sent_at)))
}

fn check_range(ttl: Duration, operation: &'static str) -> Result<()> {
    if (MIN_TTL..=Lease::MAX_TTL).contains(&ttl) {
        return Ok(());
    }
    let says = format!("a ttl of {ttl:?} is out of range; ask for {MIN_TTL:?} to 365 days");
    Err(Error::new(ErrorKind::InvalidInput, Effect::None, NAME, operation, says))
}

/// A fixed lease must be as long as it says, and nobody renews it.
fn check_fixed(lease: Lease, asked: Duration, session: &Session) -> Result<(), Failure> {
    let most = session.timeout() / 2;
    if lease.is_renewed() || asked <= most {
        return Ok(());
    }
    Err(Failure::FixedTooLong { asked, most })
}

fn place_of(grant: &Grant) -> Result<&Place, Failure> {
    grant.state.as_ref().and_then(|state| state.downcast_ref()).ok_or(Failure::Foreign)
}

fn renewable<'a>(renew: &Renew<'a>) -> Result<&'a Place> {
    let claim = &renew.grant.claim;
    check_range(renew.ttl, "renew").map_err(|error| error.with_key(&claim.key))?;
    let place = place_of(renew.grant);
    place
        .and_then(|place| check_fixed(claim.lease, renew.ttl, &place.session).map(|()| place))
        .map_err(|failure| explain(&failure, NAME, "renew").with_key(&claim.key))
}

fn renew_error(failure: &Failure, renew: &Renew<'_>) -> Error {
    let key = &renew.grant.claim.key;
    let says = match failure {
        Failure::Displaced => "the lock's node is gone; stop the work that it guards",
        failure if failure.is_expiry() => "the session has ended, and the lock with it; stop the work that it guards",
        failure => return explain(failure, NAME, "renew").with_key(key),
    };
    Error::new(ErrorKind::Lost, Effect::None, NAME, "renew", says).with_key(key)
}

const fn released(deleted: bool) -> Release {
    if deleted { Release::Released } else { Release::NotHeld }
}

/// A session that ends while it deletes a node, perhaps of another session, does not say whether it has.
fn may_be_deleted(failure: Failure) -> Failure {
    if failure.is_expiry() { failure.unsure() } else { failure }
}
