//! `lock-bench compare --tell`: one scenario with one strategy as a time line, with what went over the wire.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use lock_testkit::fault::{Message, Proxy};
use lock_testkit::history::{Event, Op, Phase};

use crate::lab::Lab;
use crate::report::painted_as;
use crate::scenario::{Expected, Observed, Outcome, Scenario};
use crate::{Failure, Strategy};

/// The most lines that a screen shows a class.
const LINES: usize = 40;
/// Title, strategy, gaps and verdict.
const FRAME: usize = 8;

/// What went over the wire, by the lab's clock.
#[derive(Clone)]
pub(crate) struct Transcript {
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    passed: Arc<Mutex<Vec<Passed>>>,
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
        Self { clock: Arc::new(clock), passed: Arc::default() }
    }

    /// Writes down what goes through an actor's proxies from now on.
    pub(crate) fn of(&self, actor: &str, proxies: &[Proxy]) {
        for (at, proxy) in proxies.iter().enumerate() {
            let (transcript, actor) = (self.clone(), actor.to_owned());
            let server = (proxies.len() > 1).then_some(at);
            proxy.listen(move |message| {
                let passed =
                    Passed { t_ns: (transcript.clock)(), actor: actor.clone(), server, message: message.clone() };
                transcript.passed.lock().unwrap_or_else(PoisonError::into_inner).push(passed);
            });
        }
    }
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
    let lab = Lab::start(program).await?;
    let transcript = Transcript::new(lab.now());
    let (outcome, stage) = scenario.play_once(&lab, strategy, Some(transcript.clone())).await;
    let passed = transcript.passed.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let lines = time_line(&stage.key, &stage.history.events(), &passed, colours);
    let left_out = lines.len().saturating_sub(LINES - FRAME);
    // What happened last is what the scenario is about.
    let shown = lines.iter().take((LINES - FRAME) / 2).cloned();
    let note = (left_out > 0).then(|| format!("          ... {left_out} lines left out ...\n"));
    let rest = lines.iter().skip((LINES - FRAME) / 2 + left_out).cloned();
    text.extend(shown.chain(note).chain(rest));
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
    let seen = outcome.seen.iter().filter_map(|seen| seen.split(':').next()).map(ToOwned::to_owned);
    let measured = outcome.figures.iter().map(|figure| format!("{}: {}", figure.of, figure.value));
    let seen: Vec<_> = seen.chain(measured).collect();
    let shown = if seen.is_empty() { String::new() } else { format!(" ({})", seen.join(", ")) };
    format!("\n{}, {agrees}: {because}\n", painted_as(&format!("It {observed}{shown}"), code, colours))
}

/// The events and the messages about the lock, in order.
fn time_line(key: &str, events: &[Event], passed: &[Passed], colours: bool) -> Vec<String> {
    let actors: Vec<_> = {
        let mut actors = Vec::new();
        let names = events.iter().map(|event| &*event.actor).chain(passed.iter().map(|passed| &*passed.actor));
        for name in names.filter(|name| !name.is_empty()) {
            if !actors.contains(&name) {
                actors.push(name);
            }
        }
        actors
    };
    let width = actors.iter().map(|name| name.len()).max().unwrap_or(1);
    let said = events.iter().filter_map(|event| Some((event.t_ns, &*event.actor, None, words(event)?)));
    let sent = passed
        .iter()
        .filter_map(|passed| Some((passed.t_ns, &*passed.actor, passed.server, wire(key, &passed.message)?)));
    let mut all: Vec<_> = said.chain(sent).collect();
    all.sort_by_key(|(t_ns, ..)| *t_ns);
    gather_polls(&mut all);
    let start = all.first().map_or(0, |(t_ns, ..)| *t_ns);
    let line = |(t_ns, actor, server, what): (u64, &str, Option<usize>, String)| {
        let ms = (t_ns - start) as f64 / 1e6;
        // A colour for each actor, in the order in which they come.
        let code = ["36", "35", "34", "32"][actors.iter().position(|name| *name == actor).unwrap_or(0) % 4];
        let server = server.map_or_else(String::new, |at| format!("{}", at + 1));
        format!("{ms:9.1} ms  {} {server:1} {what}\n", painted_as(&format!("{actor:width$}"), code, colours))
    };
    all.into_iter().map(line).collect()
}

type Line<'a> = (u64, &'a str, Option<usize>, String);

/// What somebody who polls asks and is told again and again is shown once, with how often.
fn gather_polls(lines: &mut Vec<Line<'_>>) {
    const MANY: usize = 3;

    let mut times = HashMap::new();
    for (_, actor, server, what) in &*lines {
        *times.entry((*actor, *server, what.clone())).or_insert(0) += 1;
    }
    let mut shown = HashSet::new();
    lines.retain_mut(|(_, actor, server, what)| {
        let line = (*actor, *server, what.clone());
        let times = times[&line];
        if times < MANY {
            return true;
        }
        what.push_str(&format!(" ({times} times in all)"));
        shown.insert(line)
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
fn wire(key: &str, message: &Message) -> Option<String> {
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
            Some(format!("   <- {} ({name})", reply(key, says)))
        }
        Message::Push(words) if is_about(words) => Some(format!("   <- push: {}", spoken(key, words))),
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

/// A reply of Redis in words; of another store, that it came.
fn reply(key: &str, says: &Bytes) -> String {
    let Ok(text) = std::str::from_utf8(says) else { return format!("{} bytes", says.len()) };
    let mut lines = text.split("\r\n");
    let Some(first) = lines.next() else { return String::new() };
    let rest: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with(['$', '*', '%'])).collect();
    match first.split_at_checked(1) {
        Some(("+" | ":" | "#" | ",", value)) => short(key, value.as_bytes()).unwrap_or_default(),
        Some(("-", error)) => format!("error: {error}"),
        Some(("_", _) | ("$" | "*", "-1")) => "nil".into(),
        Some(("$", _)) => rest.first().and_then(|value| short(key, value.as_bytes())).unwrap_or_default(),
        Some(("*" | "%" | "~", _)) => {
            let values: Vec<_> = rest
                .iter()
                .filter_map(|value| short(key, value.trim_start_matches([':', '+', '#']).as_bytes()))
                .collect();
            format!("[{}]", values.join(", "))
        }
        _ => format!("{} bytes", says.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_told_with_short_words_and_without_those_of_others() {
        let request = |words: &[&str]| {
            Message::Request(words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect())
        };
        let told = wire("S19/a/1", &request(&["SET", "hasp:S19/a/1", "0123456789abcdef0123456789abcdef", "NX"]));
        assert_eq!(told.unwrap(), "-> SET hasp:LOCK 012345.. NX");
        assert!(wire("S19/a/1", &request(&["PING"])).is_none());
        assert!(wire("S19/a/1", &request(&["EXEC"])).is_some());
    }

    #[test]
    fn replies_of_redis_are_told_as_their_values() {
        for (says, told) in [
            ("+OK\r\n", "OK"),
            (":1\r\n", "1"),
            ("$-1\r\n", "nil"),
            ("_\r\n", "nil"),
            ("$3\r\nabc\r\n", "abc"),
            ("*2\r\n:1\r\n$2\r\nhi\r\n", "[1, hi]"),
            ("-OOM no\r\n", "error: OOM no"),
        ] {
            assert_eq!(reply("k", &Bytes::from_static(says.as_bytes())), told, "{says:?}");
        }
    }
}
