//! A claim's place in line: getting it, looking where it stands, waiting for its turn, giving it up.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use lock_core::{Claim, LockKey, Moment, Stop};
use zookeeper_client::{Acls, CreateMode, CreateOptions, Error as ClientError};

use crate::error::Failure;
use crate::line::{Line, Standing};
use crate::path;
use crate::quiet::{Alone, Watch};
use crate::session::{Call, Session};
use crate::{Config, Naming};

/// How often the paths above a lock are made anew in one attempt. The server removes an empty one only after a minute, so
/// once should do.
const PARENTS_TRIES: usize = 5;

/// A node of ours in line for a lock.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) session: Arc<Session>,
    pub(crate) path: String,
    pub(crate) czxid: i64,
    /// What is known if it was alone in line, until it is gone.
    alone: Mutex<Option<Alone>>,
}

/// Where a place stood when somebody looked.
#[derive(Debug)]
pub(crate) struct Look {
    /// Just before the request was sent that the leader had a part in.
    pub(crate) sent_at: Moment,
    /// The path of the one before it; none if it has the lock.
    pub(crate) predecessor: Option<String>,
}

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It has the lock, by a request sent at this moment.
    Ours(Moment),
    Stopped,
}

/// The path of a lock.
pub(crate) fn parent(config: &Config, key: &LockKey) -> String {
    format!("{}/{}", config.prefix, path::segment(key))
}

impl Place {
    /// Stands in line: makes a node, and reads the line behind it unless the node's number proves that it is alone. A node
    /// that an earlier, unanswered request of the same claim has made is found by its GUID and kept, and the new one given up.
    pub(crate) async fn take(config: &Config, session: &Arc<Session>, claim: &Claim) -> Result<(Self, Look), Failure> {
        let parent = parent(config, &claim.key);
        let stem = config.naming.stem(claim.id);
        let node = format!("{parent}/{stem}");
        let label = claim.label.as_deref().unwrap_or_default().as_bytes();
        let options = CreateMode::EphemeralSequential.with_acls(Acls::new(&config.acls));
        let mut before = session.quiet().take(&parent);
        for _ in 0..PARENTS_TRIES {
            let call = session.call().await?;
            let created = call.client().create(&node, label, &options);
            let (created, listed) = if before.as_ref().is_some_and(Alone::may_prove) {
                (call.replies(created).await?, None)
            } else {
                // Sent one behind the other, so the list shows the new node and everybody before it.
                let listed = list(&call, &parent, before.as_ref().is_some_and(Alone::wants_watch));
                let (created, listed) = call.replies(async { tokio::join!(created, listed) }).await?;
                (created, Some(listed))
            };
            let (stat, sequence) = match call.check(created) {
                Err(Failure::Client(ClientError::NoNode)) => {
                    before = None;
                    make_parents(config, session, &parent).await?;
                    continue;
                }
                created => created?,
            };
            let path = format!("{node}{sequence}");
            let place = Self { session: Arc::clone(session), path, czxid: stat.czxid, alone: Mutex::default() };
            if stat.czxid < 0 {
                return Err(place.give_up_for(Failure::NoZxid).await);
            }
            return place.find_standing(config, &call, &stem, sequence.into_i64(), before, listed).await;
        }
        Err(Failure::NoParents)
    }

    /// Where a new node of this number stands; `before` is what was known of its path, and the list was asked for unless that
    /// may prove that it is alone.
    async fn find_standing(
        mut self,
        config: &Config,
        call: &Call<'_>,
        stem: &str,
        sequence: i64,
        mut before: Option<Alone>,
        listed: Option<Listed>,
    ) -> Result<(Self, Look), Failure> {
        let (children, watch) = match listed {
            Some(listed) => listed,
            None => match before.map(|before| before.next(sequence)) {
                Some(Ok(alone)) => {
                    self.alone = Mutex::new(Some(alone));
                    return Ok((self, Look { sent_at: call.sent_at, predecessor: None }));
                }
                disproved => {
                    before = disproved.and_then(Result::err);
                    call.replies(list(call, parent_of(&self.path), false)).await.map_err(Failure::unsure)?
                }
            },
        };
        let line = match call.check(children).and_then(|children| read(config, children)) {
            Ok(line) => line,
            Err(failure) => return Err(self.give_up_for(failure).await),
        };
        let (mut place, line) = self.settle(line, stem).await.map_err(Failure::unsure)?;
        let predecessor = place.predecessor_in(&line).map_err(Failure::unsure)?;
        if predecessor.is_none() && line.waiters() == 0 {
            place.alone = Mutex::new(Some(Alone::listed(sequence, before, watch)));
        }
        Ok((place, Look { sent_at: call.sent_at, predecessor }))
    }

    /// Of several nodes of one claim, keeps the first that is of this session, and gives up the others.
    async fn settle(mut self, mut line: Line, stem: &str) -> Result<(Self, Line), Failure> {
        let parent = parent_of(&self.path).to_owned();
        let mine: Vec<_> = line.of(stem).map(ToOwned::to_owned).collect();
        let mut kept = None;
        for name in mine {
            let path = format!("{parent}/{name}");
            let of_this_session = if path == self.path {
                Some(self.czxid)
            } else {
                let call = self.session.call().await?;
                let stat = call.reply(call.client().check_stat(&path)).await?;
                stat.filter(|stat| stat.ephemeral_owner == self.session.id()).map(|stat| stat.czxid)
            };
            match of_this_session {
                Some(czxid) if kept.is_none() => kept = Some((path, czxid)),
                _ => {
                    delete(&self.session, &path).await?;
                    line.remove(&name);
                }
            }
        }
        let (path, czxid) = kept.ok_or(Failure::Displaced)?;
        (self.path, self.czxid) = (path, czxid);
        Ok((self, line))
    }

    /// Waits for the turn of a place that has a predecessor, watching only that.
    pub(crate) async fn wait(&self, config: &Config, mut look: Look, stop: &Stop) -> Result<Turn, Failure> {
        while let Some(predecessor) = look.predecessor {
            stop.report_waiting();
            self.watch(&predecessor, stop).await?;
            if stop.is_fired() {
                self.give_up().await?;
                return Ok(Turn::Stopped);
            }
            look = self.look(config).await?;
        }
        Ok(Turn::Ours(look.sent_at))
    }

    /// Waits until the node has changed or gone, or the session has, or `stop` is fired.
    async fn watch(&self, predecessor: &str, stop: &Stop) -> Result<(), Failure> {
        let call = self.session.call().await?;
        let (found, watcher) = call.reply(call.client().check_and_watch_stat(predecessor)).await?;
        drop(call);
        if found.is_none() {
            return Ok(());
        }
        // The library panics in it when the runtime of the session has ended.
        let changed = AssertUnwindSafe(watcher.changed()).catch_unwind();
        tokio::select! {
            biased;
            () = stop.fired() => {}
            _any_event_or_none = changed => {}
            // The library sets its watches anew when it connects anew, so this finds nothing unless that fails.
            () = tokio::time::sleep(self.session.timeout()) => {}
        }
        Ok(())
    }

    /// Looks where it stands: `sync`, because a follower may be behind, and the list behind it.
    async fn look(&self, config: &Config) -> Result<Look, Failure> {
        let call = self.session.call().await?;
        let sent_at = call.sent_at;
        let line = synced_line(config, &call, parent_of(&self.path)).await?;
        let predecessor = line.as_ref().map_or(Err(Failure::Displaced), |line| self.predecessor_in(line))?;
        Ok(Look { sent_at, predecessor })
    }

    fn predecessor_in(&self, line: &Line) -> Result<Option<String>, Failure> {
        match line.standing(path::name(&self.path)) {
            Standing::First => Ok(None),
            Standing::Behind(name) => Ok(Some(format!("{}/{name}", parent_of(&self.path)))),
            Standing::Missing => Err(Failure::Displaced),
        }
    }

    /// Notes that the node is gone, by the server's word.
    pub(crate) fn note_gone(&self) {
        let alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(alone) = alone {
            self.session.quiet().put(parent_of(&self.path), alone);
        }
    }

    /// Leaves the line.
    pub(crate) async fn give_up(&self) -> Result<(), Failure> {
        delete(&self.session, &self.path).await.map(drop)
    }

    /// Leaves the line because of a failure, and says whether that is certain.
    pub(crate) async fn give_up_for(&self, failure: Failure) -> Failure {
        if !failure.is_answer() {
            return failure.unsure();
        }
        match self.give_up().await {
            Ok(()) => failure,
            Err(second) => {
                tracing::debug!(path = self.path, ?second, "a node was not given up; its claim will be abandoned");
                failure.unsure()
            }
        }
    }
}

/// Makes the path of a lock as its naming's own client does. Curator: as container nodes where the server has them, which it
/// removes when they have become empty; a removal meets a new contender only as its `NoNode`, and then the path is made
/// again. kazoo: as persistent nodes, because its lock object makes the path once and fails when it is gone.
async fn make_parents(config: &Config, session: &Session, parent: &str) -> Result<(), Failure> {
    let acls = Acls::new(&config.acls);
    let mode = match config.naming {
        Naming::Curator => CreateMode::Container,
        Naming::Kazoo => CreateMode::Persistent,
    };
    let made = match make_path(session, parent, &mode.with_acls(acls)).await {
        Err(Failure::Client(ClientError::Unimplemented)) => {
            make_path(session, parent, &CreateMode::Persistent.with_acls(acls)).await
        }
        made => made,
    };
    match made {
        Err(Failure::Client(ClientError::NoNode)) => Err(Failure::NoChroot),
        made => made,
    }
}

async fn make_path(session: &Session, path: &str, options: &CreateOptions<'_>) -> Result<(), Failure> {
    let call = session.call().await?;
    call.reply(call.client().mkdir(path, options)).await
}

/// The children of a lock's path, and the watch on it that was asked for.
type Listed = (Result<Vec<String>, ClientError>, Option<Watch>);

/// Lists the children of a lock's path, behind a watch on the path if `watched`. It is sent when this is called.
fn list<'a>(call: &'a Call<'_>, parent: &'a str, watched: bool) -> impl Future<Output = Listed> + Send + 'a {
    let watch = watched.then(|| Watch::set(call.client(), parent));
    let children = call.client().list_children(parent);
    let watch = async {
        match watch {
            Some(watch) => watch.await,
            None => None,
        }
    };
    async { tokio::join!(children, watch) }
}

/// The line of a lock as the leader knows it; none if the lock has no path.
pub(crate) async fn synced_line(config: &Config, call: &Call<'_>, parent: &str) -> Result<Option<Line>, Failure> {
    let synced = call.client().sync(parent);
    let listed = call.client().list_children(parent);
    let (synced, listed) = call.replies(async { tokio::join!(synced, listed) }).await?;
    call.check(synced)?;
    match call.check(listed) {
        Err(Failure::Client(ClientError::NoNode)) => Ok(None),
        listed => Ok(Some(read(config, listed?)?)),
    }
}

/// Deletes a node; false if it was not there.
pub(crate) async fn delete(session: &Session, path: &str) -> Result<bool, Failure> {
    let call = session.call().await?;
    match call.reply(call.client().delete(path, None)).await {
        Ok(()) => Ok(true),
        Err(Failure::Client(ClientError::NoNode)) => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn read(config: &Config, children: Vec<String>) -> Result<Line, Failure> {
    Line::new(children, config.naming).map_err(|child| Failure::OtherNaming { child, naming: config.naming })
}

fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}
