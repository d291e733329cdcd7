//! Makes the faults of a schedule when their points are reached.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_all;
use lock_testkit::fault::{Armed, Direction, Proxy, Request};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::schedule::{Fault, Planned, Point, majority_from, name};
use super::servers::Servers;
use crate::Failure;
use crate::lab::{Contender, Lab};

/// Where a schedule is played.
pub(super) struct Ground {
    pub(super) lab: Arc<Lab>,
    pub(super) servers: Arc<Servers>,
    pub(super) players: Vec<Player>,
    pub(super) ttl: Duration,
    faults: Vec<Planned>,
    begun: Mutex<JoinSet<Result<(), Failure>>>,
    /// Whether the contenders are done, so that nothing more is to be waited for.
    over: watch::Sender<bool>,
    now: Box<dyn Fn() -> u64 + Send + Sync>,
    steps: Mutex<Vec<Step>>,
}

/// Something that was done, and when by the lab clock.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) t_ns: u64,
    pub(super) text: String,
    /// The fault that began.
    pub(super) fault: Option<Planned>,
}

/// A contender, and who keeps it from running.
pub(super) struct Player {
    pub(super) contender: Contender,
    still: tokio::sync::Mutex<Still>,
}

#[derive(Default)]
struct Still {
    /// How many faults keep it stopped.
    stops: usize,
    dead: bool,
}

impl Player {
    pub(super) fn new(contender: Contender) -> Self {
        Self { contender, still: tokio::sync::Mutex::default() }
    }

    /// Whether it was killed.
    pub(super) async fn is_dead(&self) -> bool {
        self.still.lock().await.dead
    }

    async fn halt(&self) -> Result<(), Failure> {
        let mut still = self.still.lock().await;
        still.stops += 1;
        if still.stops == 1 && !still.dead { self.contender.stop() } else { Ok(()) }
    }

    async fn go_on(&self) -> Result<(), Failure> {
        let mut still = self.still.lock().await;
        still.stops -= 1;
        if still.stops == 0 && !still.dead { self.contender.cont() } else { Ok(()) }
    }

    async fn kill(&self) -> Result<(), Failure> {
        let mut still = self.still.lock().await;
        if still.dead {
            return Ok(());
        }
        still.dead = true;
        self.contender.kill()
    }
}

/// Lets the faults of a ground come to their ends when it is dropped, also if the play was given up: what is stopped goes on.
pub(super) struct CalmAfterwards(pub(super) Arc<Ground>);

impl Drop for CalmAfterwards {
    fn drop(&mut self) {
        self.0.over.send_replace(true);
    }
}

impl Ground {
    pub(super) fn new(
        lab: &Arc<Lab>,
        servers: &Arc<Servers>,
        players: Vec<Player>,
        ttl: Duration,
        faults: Vec<Planned>,
    ) -> Self {
        Self {
            lab: Arc::clone(lab),
            servers: Arc::clone(servers),
            players,
            ttl,
            faults,
            begun: Mutex::default(),
            over: watch::Sender::new(false),
            now: Box::new(lab.now()),
            steps: Mutex::default(),
        }
    }

    /// A contender has come to this point: makes the faults that are planned for it, and returns when they have begun.
    pub(super) async fn reach(self: &Arc<Self>, point: Point) {
        for planned in self.faults.iter().filter(|planned| planned.at == point) {
            let lasting = planned.lasting.of(self.ttl);
            self.write_down(format!("{point}: {}", planned.fault.tell(lasting)), Some(planned.clone()));
            let (begins, begun) = oneshot::channel();
            let (ground, fault) = (Arc::clone(self), planned.fault);
            lock(&self.begun).spawn(async move { ground.make(fault, lasting, begins).await });
            // One that ends at once, or fails, says nothing: its task tells.
            let _ = begun.await;
        }
    }

    /// The contenders are done: waits until every fault is over.
    pub(super) async fn calm_down(&self) -> Result<(), Failure> {
        self.over.send_replace(true);
        let mut begun = std::mem::take(&mut *lock(&self.begun));
        while let Some(fault) = begun.join_next().await {
            fault??;
        }
        Ok(())
    }

    pub(super) fn log(&self, text: String) {
        self.write_down(text, None);
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        lock(&self.steps).clone()
    }

    fn write_down(&self, text: String, fault: Option<Planned>) {
        let t_ns = (self.now)();
        lock(&self.steps).push(Step { t_ns, text, fault });
    }

    async fn make(&self, fault: Fault, lasting: Duration, begins: oneshot::Sender<()>) -> Result<(), Failure> {
        // A contender that was given up meanwhile does not wait for it.
        let begun = || {
            let _ = begins.send(());
        };
        let wait = || tokio::time::sleep(lasting);
        match fault {
            Fault::Stop { who } => {
                self.players[who].halt().await?;
                begun();
                wait().await;
                self.players[who].go_on().await
            }
            Fault::Kill { who } => self.players[who].kill().await,
            Fault::KillWhile { who, command, arrives } => {
                let held = self.arm(who, command, fault);
                begun();
                if self.comes(&held, who, command).await {
                    self.players[who].kill().await?;
                    self.log(format!("{} is dead", name(who)));
                    if arrives {
                        wait().await;
                    } else {
                        self.proxies(who).iter().for_each(Proxy::cut_connections);
                    }
                }
                Ok(())
            }
            Fault::Delay { who, replies } => {
                let direction = if replies { Direction::ToClient } else { Direction::ToServer };
                let set = |delay| self.proxies(who).iter().for_each(|proxy| proxy.set_delay(direction, delay));
                set(lasting);
                begun();
                tokio::time::sleep(lasting * 4).await;
                set(Duration::ZERO);
                Ok(())
            }
            Fault::BlackHole { who, server } => {
                let proxy = &self.proxies(who)[server];
                proxy.black_hole();
                begun();
                wait().await;
                proxy.heal();
                Ok(())
            }
            Fault::Partition { who, server } => {
                let majority: Vec<_> = majority_from(server).collect();
                let ways = (0..self.players.len()).flat_map(|player| {
                    self.proxies(player).iter().enumerate().map(move |(server, proxy)| (player, server, proxy))
                });
                let cut: Vec<_> = ways
                    .filter(|(player, server, _)| majority.contains(server) == (*player == who))
                    .map(|(.., proxy)| proxy)
                    .collect();
                cut.iter().for_each(|proxy| proxy.black_hole());
                begun();
                wait().await;
                cut.iter().for_each(|proxy| proxy.heal());
                Ok(())
            }
            Fault::Cut { who, server } => {
                let proxy = &self.proxies(who)[server];
                proxy.refuse_connections();
                proxy.cut_connections();
                begun();
                wait().await;
                Ok(proxy.accept_connections()?)
            }
            Fault::HoldRequest { who, command } | Fault::HoldReply { who, command } => {
                let held = self.arm(who, command, fault);
                begun();
                if self.comes(&held, who, command).await {
                    wait().await;
                    let what = if let Fault::HoldReply { .. } = fault { "the reply to " } else { "" };
                    self.log(format!("{what}{}'s {command} goes on its way", name(who)));
                }
                Ok(())
            }
            Fault::LoseReply { who, command } | Fault::CutAt { who, command } => {
                let armed = self.arm(who, command, fault);
                begun();
                self.comes(&armed, who, command).await;
                Ok(())
            }
            // It begins when its turn comes; the contenders do not wait for that.
            Fault::StopServer { server } => {
                begun();
                self.servers.stop(server, lasting).await
            }
            Fault::RestartServer { server } => {
                begun();
                self.servers.restart(server, lasting).await
            }
            Fault::KillClients { server } => {
                begun();
                self.servers.command(server, &["CLIENT", "KILL", "TYPE", "normal"]).await?;
                self.servers.command(server, &["CLIENT", "KILL", "TYPE", "pubsub"]).await
            }
            Fault::FlushScripts { server } => {
                begun();
                self.servers.command(server, &["SCRIPT", "FLUSH"]).await
            }
            Fault::PassTime => {
                for player in &self.players {
                    player.halt().await?;
                }
                self.lab.clocks().step(lasting)?;
                for player in &self.players {
                    player.go_on().await?;
                }
                Ok(())
            }
            Fault::JumpWall { who, seconds } => {
                let slot = self.players[who].contender.slot();
                let by = Duration::from_secs(seconds.unsigned_abs().into());
                let jump = |forward| if forward { slot.step_wall_forward(by) } else { slot.step_wall_back(by) };
                jump(seconds > 0)?;
                begun();
                wait().await;
                Ok(jump(seconds < 0)?)
            }
        }
    }

    fn proxies(&self, who: usize) -> &[Proxy] {
        self.players[who].contender.proxies()
    }

    /// Arms a fault of a contender's next request of this command, at every server.
    fn arm(&self, who: usize, command: &str, fault: Fault) -> Vec<Armed> {
        let arm = |proxy: &Proxy| {
            let when = proxy.when(Request::command(command));
            match fault {
                Fault::HoldReply { .. } => when.hold_reply(),
                Fault::LoseReply { .. } => when.lose_reply(),
                Fault::CutAt { .. } => when.cut(),
                _ => when.hold_request(),
            }
        };
        self.proxies(who).iter().map(arm).collect()
    }

    /// Waits until what is armed has happened at a server; false if the contenders are done before it has.
    async fn comes(&self, armed: &[Armed], who: usize, command: &str) -> bool {
        let mut over = self.over.subscribe();
        let seen = select_all(armed.iter().map(|armed| armed.seen().boxed()));
        tokio::select! {
            biased;
            _ = seen => {
                self.log(format!("{}'s {command} has come", name(who)));
                true
            }
            _ = over.wait_for(|over| *over) => false,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
