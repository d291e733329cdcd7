//! Plays a schedule on real servers, and judges the history.

use std::sync::Arc;
use std::time::Duration;

use lock_core::Lease;
use lock_testkit::history::{Event, History, Observable, Op, Phase, Violation};
use tokio::task::JoinSet;

use super::fault::{CalmAfterwards, Ground, Player, Step};
use super::promise::{JUDGED, has_tokens};
use super::schedule::{KEYS, Moment, Planned, Point, Schedule, Share, Turn, name};
use super::servers::Servers;
use crate::lab::{Held, Lab, Resource, Setup, Stage};
use crate::{Failure, Strategy};

/// Nothing takes as long.
const LIMIT: Duration = Duration::from_secs(90);

/// Where schedules are played with one strategy, one after another.
pub(super) struct Theatre {
    lab: Arc<Lab>,
    servers: Arc<Servers>,
    strategy: Strategy,
}

/// What came of a schedule.
pub(super) struct Played {
    /// What the verdict goes by.
    pub(super) found: Vec<Violation>,
    /// How often something else was seen, which no lock can rule out.
    pub(super) beside: Vec<(Observable, usize)>,
    /// What was done, in order.
    pub(super) steps: Vec<Step>,
    pub(super) events: Vec<Event>,
}

impl Played {
    /// What was found, each once.
    pub(super) fn observables(&self) -> Vec<Observable> {
        JUDGED.into_iter().filter(|judged| self.found.iter().any(|found| found.observable == *judged)).collect()
    }

    /// When the first of these was complete, by the lab clock; the end of time if none was found.
    pub(super) fn complete_ns(&self, wanted: &[Observable]) -> u64 {
        let found = self.found.iter().filter(|found| wanted.contains(&found.observable));
        found.filter_map(|found| found.events.last()).map(|event| event.t_ns).min().unwrap_or(u64::MAX)
    }

    /// The faults that had begun by then: the later ones cannot have caused it.
    pub(super) fn causes(&self, wanted: &[Observable]) -> Vec<Planned> {
        let complete_ns = self.complete_ns(wanted);
        let before = self.steps.iter().filter(|step| step.t_ns <= complete_ns);
        before.filter_map(|step| step.fault.clone()).collect()
    }

    pub(super) fn grants(&self) -> usize {
        self.events.iter().filter(|event| (event.op, event.phase) == (Op::Acquire, Phase::Ok)).count()
    }
}

/// The resources that the locks guard, of each key.
#[derive(Clone)]
struct Guarded {
    plain: Resource,
    /// Checks tokens, if the strategy has any.
    fenced: Option<Resource>,
}

impl Theatre {
    pub(super) fn open(lab: &Arc<Lab>, strategy: Strategy) -> Result<Self, Failure> {
        let servers = Arc::new(Servers::start(lab, strategy.kind().store())?);
        Ok(Self { lab: Arc::clone(lab), servers, strategy })
    }

    /// Plays a schedule with new keys and contenders, and looks for what must not be.
    ///
    /// # Errors
    ///
    /// If it could not be made; that says nothing about the lock.
    pub(super) async fn play(&self, schedule: &Schedule) -> Result<Played, Failure> {
        let key = format!("soak-{:x}", fastrand::u64(..));
        let stage = Stage::new(&self.lab, self.strategy, key, History::on(self.lab.now()), None);
        let playing = self.play_on(&stage, schedule);
        let steps = tokio::time::timeout(LIMIT, playing)
            .await
            .map_err(|_| format!("a schedule was not over within {LIMIT:?}"))??;
        let events = stage.history.events();
        let (mut found, mut beside) = (Vec::new(), Vec::new());
        for observable in Observable::ALL {
            // The resource that checks no tokens shows late writes for every lock.
            let (judged, others): (Vec<_>, Vec<_>) = observable.find(&events).into_iter().partition(|violation| {
                JUDGED.contains(&observable)
                    && (observable != Observable::StaleWriteAccepted || violation.events[0].key.ends_with("+f"))
            });
            found.extend(judged);
            if !others.is_empty() {
                beside.push((observable, others.len()));
            }
        }
        Ok(Played { found, beside, steps, events })
    }

    async fn play_on(&self, stage: &Stage<'_>, schedule: &Schedule) -> Result<Vec<Step>, Failure> {
        let ttl = stage.short_ttl();
        let place = self.servers.place()?;
        // A request may be as late as it likes within its lease and somewhat beyond, and then its client gives it up.
        let setup = Setup::frail().with_request_limit(ttl * 2).with_unavailable_after(ttl * 2);
        let mut players = Vec::with_capacity(schedule.turns.len());
        for who in 0..schedule.turns.len() {
            players.push(Player::new(stage.contender_at(&name(who), &place, setup).await?));
        }
        let keys: Vec<_> = (0..KEYS).map(|key| format!("{}-{key}", stage.key)).collect();
        let has_tokens = has_tokens(self.strategy.kind());
        let guarded: Vec<_> = keys
            .iter()
            .map(|key| {
                let hash = |fenced, sign| {
                    let (url, key) = (self.lab.redis().server.url(), format!("guarded:{key}{sign}"));
                    Resource::Redis { url, key, fenced }
                };
                Guarded { plain: hash(false, ""), fenced: has_tokens.then(|| hash(true, "+f")) }
            })
            .collect();

        let ground = Arc::new(Ground::new(&self.lab, &self.servers, players, ttl, schedule.faults.clone()));
        ground.log("all contenders are connected".into());
        let _calm = CalmAfterwards(Arc::clone(&ground));
        let mut contenders = JoinSet::new();
        for (who, turns) in schedule.turns.iter().enumerate() {
            let (ground, keys, guarded, turns) = (Arc::clone(&ground), keys.clone(), guarded.clone(), turns.clone());
            contenders.spawn(async move {
                for (number, turn) in turns.iter().enumerate() {
                    let taken = take_turn(&ground, who, number, turn, &keys[turn.key], &guarded[turn.key]).await;
                    // Of one who was killed nothing more is wanted.
                    if ground.players[who].is_dead().await {
                        return Ok(());
                    }
                    taken.map_err(|error| format!("{}, turn {}: {error}", name(who), number + 1))?;
                }
                Ok::<_, Failure>(())
            });
        }
        let mut done = Vec::new();
        while let Some(ended) = contenders.join_next().await {
            done.push(ended?);
        }
        ground.calm_down().await?;
        done.into_iter().collect::<Result<(), _>>()?;

        // The contenders are still there: what one of them keeps without knowing, nobody else can get.
        ground.log("all is calm, and a fresh client wants each lock".into());
        let prober = stage.contender_at("prober", &place, Setup::patient()).await?;
        for key in &keys {
            prober.on(key).probe(stage.short(), stage.bound()).await?;
        }
        Ok(ground.steps())
    }
}

/// A contender asks for the lock, looks at its guard, writes, looks and writes again, and gives it back. Any answer is an answer:
/// what it was is in the history.
async fn take_turn(
    ground: &Arc<Ground>,
    who: usize,
    number: usize,
    turn: &Turn,
    key: &str,
    guarded: &Guarded,
) -> Result<(), Failure> {
    let point = |moment| Point { who, turn: number, moment };
    let rest = |share: Share| tokio::time::sleep(share.of(ground.ttl));

    rest(turn.idle).await;
    ground.reach(point(Moment::Asks)).await;
    let lease = if turn.renewed { Lease::renewed(ground.ttl) } else { Lease::fixed(ground.ttl) };
    let asking = ground.players[who].contender.on(key).acquiring(lease, ground.ttl * 2)?;
    if let Some(patience) = turn.cancelled {
        rest(patience).await;
        return asking.give_up().await;
    }
    let Ok(held) = asking.outcome().await? else { return Ok(()) };

    ground.reach(point(Moment::Holds)).await;
    act(&held, guarded).await?;
    tokio::time::sleep(turn.holding.of(ground.ttl) / 2).await;
    if turn.extended {
        held.extend(ground.ttl).await?;
    }
    tokio::time::sleep(turn.holding.of(ground.ttl) / 2).await;
    act(&held, guarded).await?;

    ground.reach(point(Moment::Releases)).await;
    if turn.dropped { held.drop_guard().await } else { held.release().await.map(drop) }
}

/// What it does by right of the lock. The contender looks at its guard at each write.
async fn act(held: &Held, guarded: &Guarded) -> Result<(), Failure> {
    held.write(&guarded.plain).await?;
    if let Some(fenced) = &guarded.fenced {
        held.write(fenced).await?;
    }
    Ok(())
}
