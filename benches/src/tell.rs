//! `lock-bench compare --tell`: one scenario with one strategy as a time line, with what went over the wire.

mod acts;
mod reply;
mod shorten;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use lock_testkit::fault::{Message, Proxy};
use lock_testkit::history::{Event, Op, Phase};

use crate::lab::Lab;
use crate::report::painted_as;
use crate::scenario::{Expected, Observed, Outcome, Scenario};
use crate::{Failure, Store, Strategy};

/// The most lines that a screen shows a class.
const LINES: usize = 40;
/// Title, strategy, three gaps and the verdict.
const FRAME: usize = 6;
/// Who does what no contender does.
const LAB: &str = "lab";

/// What went over the wire and what was done to servers, by the lab's clock.
#[derive(Clone)]
pub(crate) struct Transcript {
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    passed: Arc<Mutex<Vec<Passed>>>,
    acts: Arc<Mutex<Vec<Act>>>,
    /// The ports of the servers that a contender reaches, in their order.
    servers: Arc<Mutex<Vec<u16>>>,
}

/// Something that the lab has done.
#[derive(Clone)]
struct Act {
    t_ns: u64,
    /// To which server, if to one.
    port: Option<u16>,
    what: String,
}

#[derive(Clone)]
struct Passed {
    t_ns: u64,
    actor: String,
    /// Which of its servers, where it has several.
    server: Option<usize>,
    message: Message,
}

impl Transcript {
    fn new(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), passed: Arc::default(), acts: Arc::default(), servers: Arc::default() }
    }

    /// Writes down what goes through an actor's proxies from now on.
    pub(crate) fn of(&self, actor: &str, proxies: &[Proxy]) {
        let mut servers = lock(&self.servers);
        for port in proxies.iter().map(|proxy| proxy.server().port()) {
            if !servers.contains(&port) {
                servers.push(port);
            }
        }
        drop(servers);
        for (at, proxy) in proxies.iter().enumerate() {
            let (transcript, actor) = (self.clone(), actor.to_owned());
            let server = (proxies.len() > 1).then_some(at);
            proxy.listen(move |message| {
                let passed =
                    Passed { t_ns: (transcript.clock)(), actor: actor.clone(), server, message: message.clone() };
                lock(&transcript.passed).push(passed);
            });
        }
    }

    fn act(&self, port: Option<u16>, what: String) {
        lock(&self.acts).push(Act { t_ns: (self.clock)(), port, what });
    }

    /// The acts in words.
    fn acts(&self) -> Vec<(u64, String)> {
        let servers = lock(&self.servers).clone();
        let whom = |port: u16| match servers.iter().position(|server| *server == port) {
            Some(_) if servers.len() == 1 => "the server".to_owned(),
            Some(at) => format!("server {}", at + 1),
            None => format!("the server at port {port}"),
        };
        let words = |act: &Act| match act.port {
            Some(port) => format!("{} {}", whom(port), act.what),
            None => act.what.clone(),
        };
        lock(&self.acts).iter().map(|act| (act.t_ns, words(act))).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says what the lab does to a contender, or to a store in a way that the test kit does not know.
pub(crate) fn act(what: &str) {
    tracing::info!(target: acts::TARGET, "{what}");
}

/// Plays the scenario and tells it; whether it was as documented.
///
/// # Errors
///
/// If the lab cannot be started.
pub(crate) async fn tell(
    program: &Path,
    scenario: &Scenario,
    strategy: &Strategy,
    colours: bool,
) -> Result<(String, bool), Failure> {
    let mut text = format!("{}  {}\n{}: {}\n\n", scenario.id, scenario.title, strategy.name(), strategy.summary());
    let expected = scenario.expect(strategy.kind());
    if let Expected::CannotApply(because) = expected {
        writeln!(text, "It cannot apply: {because}.")?;
        return Ok((text, true));
    }
    for (at, step) in scenario.steps.iter().enumerate() {
        writeln!(text, "  {}. {step}", at + 1)?;
    }
    text.push('\n');
    let lab = Lab::start(program).await?;
    let transcript = Transcript::new(lab.now());
    acts::hear(&transcript);
    let (outcome, stage) = scenario.play_once(&lab, strategy, Some(transcript.clone())).await;
    let lines = time_line(stage.kind().store(), &stage.key, &stage.history.events(), &transcript, colours);
    text.extend(shorten::to(lines, LINES - FRAME - scenario.steps.len()));
    text.push_str(&verdict(&outcome, colours));
    Ok((text, outcome.is_as_documented()))
}

fn verdict(outcome: &Outcome, colours: bool) -> String {
    let (Expected::Breaks(because) | Expected::Holds(because) | Expected::CannotApply(because)) = outcome.expected;
    let observed = match &outcome.observed {
        Observed::Breaks => "breaks".to_owned(),
        Observed::Holds => "holds".to_owned(),
        Observed::BreaksOtherwise => "breaks in another way".to_owned(),
        Observed::NotMade(reason) => format!("could not be made: {reason}"),
        Observed::NotPlayed => "-".to_owned(),
    };
    let code = match (outcome.is_as_documented(), &outcome.observed) {
        (true, Observed::Holds) => "32",
        (true, _) => "33",
        (false, _) => "1;31",
    };
    let agrees = if outcome.is_as_documented() { "as documented" } else { "NOT as documented" };
    let mut seen: Vec<_> =
        outcome.seen.iter().filter_map(|seen| seen.split(':').next()).map(ToOwned::to_owned).collect();
    seen.dedup();
    let measured = outcome.figures.iter().map(|figure| format!("{}: {}", figure.of, figure.value));
    seen.extend(measured);
    let shown = if seen.is_empty() { String::new() } else { format!(" ({})", seen.join(", ")) };
    format!("\n{}, {agrees}: {because}\n", painted_as(&format!("It {observed}{shown}"), code, colours))
}

/// A line of the time line.
struct Line {
    t_ns: u64,
    actor: String,
    /// Which of its servers, where it has several.
    server: Option<usize>,
    what: String,
    /// Whether it is a request or a reply, which is left out before what somebody does.
    is_message: bool,
}

/// The events, the messages about the lock and what the lab has done, in order; each with whether it is a message.
fn time_line(store: Store, key: &str, events: &[Event], transcript: &Transcript, colours: bool) -> Vec<(bool, String)> {
    let said = events.iter().filter_map(|event| {
        let actor = event.actor.to_string();
        Some(Line { t_ns: event.t_ns, actor, server: None, what: words(event)?, is_message: false })
    });
    let passed = lock(&transcript.passed).clone();
    let sent = passed.into_iter().filter_map(|Passed { t_ns, actor, server, message }| {
        // A push is news, and there are few.
        let is_message = matches!(message, Message::Request(_) | Message::Reply { .. });
        Some(Line { t_ns, actor, server, what: wire(store, key, &message)?, is_message })
    });
    let mut all: Vec<_> = said.chain(sent).collect();
    all.sort_by_key(|line| line.t_ns);
    let actors = all.iter().map(|line| line.actor.clone()).fold(Vec::new(), |mut actors, actor| {
        if !actors.contains(&actor) {
            actors.push(actor);
        }
        actors
    });
    // What was done before anybody began is the ground on which it is played.
    let start = all.first().map_or(0, |line| line.t_ns);
    let done = transcript.acts().into_iter().filter(|(t_ns, _)| *t_ns >= start);
    all.extend(done.map(|(t_ns, what)| Line { t_ns, actor: LAB.into(), server: None, what, is_message: false }));
    all.sort_by_key(|line| line.t_ns);
    gather_polls(&mut all);
    let width = all.iter().map(|line| line.actor.len()).max().unwrap_or(1);
    let text = |Line { t_ns, actor, server, what, is_message }: Line| {
        let ms = (t_ns - start) as f64 / 1e6;
        // A colour for each actor, in the order in which they come, and one for what goes wrong.
        let code = actors.iter().position(|name| *name == actor).map_or("31", |at| ["36", "35", "34", "32"][at % 4]);
        let server = server.map_or_else(String::new, |at| format!("{}", at + 1));
        (
            is_message,
            format!("{ms:9.1} ms  {} {server:1} {what}\n", painted_as(&format!("{actor:width$}"), code, colours)),
        )
    };
    all.into_iter().map(text).collect()
}

/// What somebody who polls asks and is told again and again is shown once, with how often.
fn gather_polls(lines: &mut Vec<Line>) {
    const MANY: usize = 3;

    // What the lab tells a server counts as the same whatever numbers are in it.
    let kind = |line: &Line| match line.what.split_once(" is told ") {
        Some((whom, what)) if line.actor == LAB => {
            format!("{whom} {}", what.replace(|letter: char| letter.is_ascii_digit(), ""))
        }
        _ => line.what.clone(),
    };
    let same = |line: &Line| (line.actor.clone(), line.server, kind(line));
    let mut times = HashMap::new();
    for line in &*lines {
        *times.entry(same(line)).or_insert(0) += 1;
    }
    let mut shown = HashSet::new();
    lines.retain_mut(|line| {
        let same = same(line);
        let times = times[&same];
        if times < MANY {
            return true;
        }
        line.what.push_str(&format!(" ({times} times in all)"));
        shown.insert(same)
    });
}

/// What an actor does, in words; none for what the wire shows better.
fn words(event: &Event) -> Option<String> {
    let value = || event.value.map_or_else(String::new, |value| format!(" {value}"));
    let token = || event.token.map_or_else(String::new, |token| format!(", token {token}"));
    let left = || {
        event.deadline_ns.map_or_else(String::new, |deadline| {
            format!(" for {:.0} ms", deadline.saturating_sub(event.t_ns) as f64 / 1e6)
        })
    };
    Some(match (event.op, event.phase) {
        (Op::Acquire, Phase::Invoke) => "wants the lock".into(),
        (Op::Acquire, Phase::Ok) => format!("HOLDS the lock{}{}", left(), token()),
        (Op::Acquire, Phase::Busy) => "does not get it: busy".into(),
        (Op::Acquire, Phase::Fail) => "fails to get it, without effect".into(),
        (Op::Acquire, _) => "fails to get it, and cannot know whether it did".into(),
        (Op::Renew, Phase::Ok) => format!("may act{}", left()),
        (Op::Renew, _) => "is told that the lock is not its own".into(),
        (Op::Affirm, _) => "looks at its guard: held".into(),
        (Op::Release, Phase::Invoke) => "gives it back".into(),
        (Op::Release, Phase::Ok) => "is told: released".into(),
        (Op::Release, Phase::NotHeld) => "is told: it was not yours any more".into(),
        (Op::Release, _) => "is told nothing certain of its release".into(),
        (Op::Stop, _) => "stops acting".into(),
        (Op::Read, _) => format!("reads{} from the resource", value()),
        (Op::Write, Phase::Ok) => format!("WRITES{} to the resource{}", value(), token()),
        (Op::Write, _) => format!("is REFUSED by the resource{}", token()),
        (Op::Probe, Phase::Invoke) => "a fresh client, wants the lock".into(),
        (Op::Probe, Phase::Ok) => "the fresh client has it".into(),
        (Op::Probe, _) => "the fresh client gives up: STUCK".into(),
        _ => return None,
    })
}

/// A message about the lock, with its key as `LOCK`.
fn wire(store: Store, key: &str, message: &Message) -> Option<String> {
    let is_about = |words: &[Bytes]| {
        let names_it = |word: &Bytes| word.windows(key.len()).any(|part| part == key.as_bytes());
        // Whose keys were named before.
        let follows = |word: &Bytes| {
            ["MULTI", "EXEC", "DISCARD", "UNWATCH"].iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
        };
        words.iter().any(names_it) || words.first().is_some_and(follows)
    };
    match message {
        Message::Request(words) if is_about(words) => Some(format!("-> {}", spoken(key, words))),
        Message::Reply { to, says } if is_about(to) => {
            let name = to.first().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
            Some(format!("   <- {} ({name})", reply::words(store, key, &name, says)))
        }
        Message::Push(words) if is_about(words) => Some(format!("   <- push: {}", spoken(key, words))),
        Message::Fault(what) => Some(format!("-- the network {what}")),
        _ => None,
    }
}

fn spoken(key: &str, words: &[Bytes]) -> String {
    const WIDTH: usize = 100;

    let words: Vec<_> = words.iter().filter_map(|word| short(key, word)).collect();
    let mut line = words.join(" ");
    if line.chars().count() > WIDTH {
        line = line.chars().take(WIDTH - 3).collect::<String>() + "...";
    }
    line
}

/// A word as people can read it; none if they cannot.
fn short(key: &str, word: &[u8]) -> Option<String> {
    const WIDTH: usize = 40;

    let text = std::str::from_utf8(word).ok()?.replace(key, "LOCK");
    if text.chars().any(char::is_control) {
        return None;
    }
    let is_digest = text.len() >= 16 && text.chars().all(|letter| letter.is_ascii_hexdigit());
    Some(if is_digest {
        format!("{}..", &text[..6])
    } else if text.chars().count() > WIDTH {
        text.chars().take(WIDTH - 2).collect::<String>() + ".."
    } else {
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_told_with_short_words_and_without_those_of_others() {
        let request = |words: &[&str]| {
            Message::Request(words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect())
        };
        let told =
            wire(Store::Redis, "S19/a/1", &request(&["SET", "hasp:S19/a/1", "0123456789abcdef0123456789abcdef", "NX"]));
        assert_eq!(told.unwrap(), "-> SET hasp:LOCK 012345.. NX");
        assert!(wire(Store::Redis, "S19/a/1", &request(&["PING"])).is_none());
        assert!(wire(Store::Redis, "S19/a/1", &request(&["EXEC"])).is_some());
    }
}
