//! A contender as the lab sees it: a child process with a proxy in front of every server that it uses.

mod client;
mod held;
mod link;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lock_clock::Clock;
use lock_testkit::fault::Proxy;
use lock_testkit::history::History;

pub(crate) use self::client::Client;
pub(crate) use self::held::{Acquiring, Claimed, Held};
use self::link::{Link, Pending};
use super::protocol::{Answer, Ask, Limits};
use super::{Lab, PATIENCE, Place, Stage};
use crate::{Failure, tell};

/// How a contender is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    /// Whether all of it runs on one thread, so that blocking code starves its renewals.
    pub(crate) current_thread: bool,
}

impl Setup {
    /// A client with time to spare: nothing of it ends before the scenario does.
    pub(crate) const fn patient() -> Self {
        let session = Duration::from_secs(30);
        let limits = Limits { request: PATIENCE, session, unavailable_after: None, replicas: None };
        Self { limits, current_thread: false }
    }

    /// A client that its store gives up soon after it falls silent: for holders that are to be paused or killed.
    pub(crate) const fn frail() -> Self {
        let limits = Limits { session: Duration::from_secs(2), ..Self::patient().limits };
        Self { limits, ..Self::patient() }
    }

    pub(crate) const fn with_request_limit(mut self, limit: Duration) -> Self {
        self.limits.request = limit;
        self
    }

    pub(crate) const fn with_unavailable_after(mut self, patience: Duration) -> Self {
        self.limits.unavailable_after = Some(patience);
        self
    }

    /// A lock counts when so many replicas have it, where the strategy can ask for that.
    pub(crate) const fn with_replicas(mut self, count: u32) -> Self {
        self.limits.replicas = Some(count);
        self
    }

    pub(crate) const fn on_one_thread(mut self) -> Self {
        self.current_thread = true;
        self
    }
}

/// Proves that contenders see their clocks.
pub(super) async fn prove_clocks(lab: &Lab) -> Result<(), Failure> {
    let slot = lab.slot()?;
    let link = Link::start(lab, &slot, Setup::patient(), &History::new(), "whose clocks are read")?;
    let Answer::Clocks { realtime, monotonic, boottime, lab: of_the_lab } = link.begin(Ask::Clocks)?.answer().await?
    else {
        return Err("a contender does not tell what its clocks say".into());
    };
    for (clock, told) in
        [(Clock::Wall, realtime), (Clock::Monotonic, monotonic), (Clock::Boottime, boottime), (Clock::Lab, of_the_lab)]
    {
        slot.prove(clock, || Ok(Duration::from_nanos(told)))?;
    }
    Ok(())
}

/// A process of its own, with one client that bears its name; more are made with [`client`](Contender::client). It is killed
/// when it is dropped.
pub(crate) struct Contender {
    link: Arc<Link>,
    proxies: Arc<[Proxy]>,
    client: Client,
    slot: super::Slot,
}

impl Deref for Contender {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        // What is held by somebody who still asks it must not keep it alive.
        drop(self.link.process.kill());
    }
}

impl Contender {
    /// Starts the process and connects its client.
    pub(super) async fn start(stage: &Stage<'_>, place: &Place, setup: Setup, name: &str) -> Result<Self, Failure> {
        let proxies: Arc<[Proxy]> = place.proxies()?.into();
        if let Some(transcript) = &stage.transcript {
            transcript.of(name, &proxies);
        }
        let slot = stage.lab.slot()?;
        let link = Arc::new(Link::start(stage.lab, &slot, setup, &stage.history, name)?);
        let urls = if proxies.is_empty() { place.urls() } else { place.urls_at(proxies.iter().map(Proxy::addr)) };
        let client = Client {
            link: Arc::clone(&link),
            strategy: stage.strategy.name(),
            urls,
            limits: setup.limits,
            name: name.to_owned(),
            key: stage.key.clone(),
        };
        client.connect().await?;
        Ok(Self { link, proxies, client, slot })
    }

    /// The proxy in front of the first server, or the only one.
    pub(crate) fn proxy(&self) -> &Proxy {
        &self.proxies[0]
    }

    /// One for each server, in their order.
    pub(crate) fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }

    /// Its clocks.
    pub(crate) const fn slot(&self) -> &super::Slot {
        &self.slot
    }

    /// Another client in the same process, with connections of its own by the same proxies.
    pub(crate) async fn client(&self, name: &str) -> Result<Client, Failure> {
        let client = Client { name: name.to_owned(), ..self.client.clone() };
        client.connect().await?;
        Ok(client)
    }

    /// Stops it with SIGSTOP; every thread of it stands still.
    pub(crate) fn stop(&self) -> Result<(), Failure> {
        self.tell("is stopped (SIGSTOP)");
        Ok(self.link.process.stop()?)
    }

    pub(crate) fn cont(&self) -> Result<(), Failure> {
        self.tell("goes on (SIGCONT)");
        Ok(self.link.process.cont()?)
    }

    /// Kills it with SIGKILL: nothing of it acts any more, but what is in the proxies goes on its way.
    pub(crate) fn kill(&self) -> Result<(), Failure> {
        self.tell("is killed (SIGKILL)");
        self.link.process.kill()?;
        self.link.history.ended(self.client.name.as_str());
        Ok(())
    }

    fn tell(&self, what: &str) {
        tell::act(&format!("{} {what}", self.client.name));
    }

    /// Blocks the thread that serves its asks.
    pub(crate) fn block(&self, time: Duration) -> Result<Pending, Failure> {
        self.tell(&format!("blocks its only thread for {time:?}"));
        self.client.begin(Ask::Block { time })
    }
}
