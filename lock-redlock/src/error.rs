use std::time::Duration;

use lock_core::{Effect, Error, ErrorKind};

use crate::ask::Tally;
use crate::round::majority;

/// The one place that says what it means that the nodes did not answer.
///
/// One that refuses (credentials, rights, memory) is a fault for a person only if it alone keeps a majority from coming
/// about; else it counts as one that is away.
pub(crate) fn explain<T>(
    tally: &Tally<T>,
    nodes: usize,
    limit: Duration,
    backend: &str,
    operation: &'static str,
) -> Error {
    let Tally { yes, no, failures, .. } = tally;
    let needed = majority(nodes);
    let answered = yes.len() + no;
    let silent = nodes.saturating_sub(answered + failures.len());
    let refusing: Vec<_> = failures.iter().filter(|error| error.kind() != ErrorKind::Unavailable).collect();
    let kind = match refusing.first() {
        Some(first) if refusing.len() > nodes - needed => first.kind(),
        _ => ErrorKind::Unavailable,
    };
    let may_have_effect =
        silent > 0 || !yes.is_empty() || failures.iter().any(|error| error.effect() == Effect::Unknown);
    let effect = if may_have_effect { Effect::Unknown } else { Effect::None };
    let example = refusing.first().copied().or_else(|| failures.first());
    let because = match example {
        Some(error) => format!("{} failed ({error})", failures.len()),
        None => "0 failed".to_owned(),
    };
    let says = format!(
        "{answered} of {nodes} nodes answered and {needed} are needed: {because}, {silent} silent for {limit:?}; \
         check that the nodes are up and reachable"
    );
    let error = Error::new(kind, effect, backend, operation, says);
    match example {
        Some(cause) => error.with_source(cause.clone()),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round::Verdict;

    fn failure(kind: ErrorKind, effect: Effect) -> Error {
        Error::new(kind, effect, "redis", "acquire", "no")
    }

    #[test]
    fn a_failed_round_has_the_kind_of_what_keeps_the_majority_away_and_its_effect() {
        use Effect::{None, Unknown};
        use ErrorKind::{Rejected, Unavailable};

        let table = [
            // (yes, no, failures of five nodes) => kind, effect
            (0, 0, vec![(Unavailable, None); 5], Unavailable, None),
            (0, 2, vec![(Unavailable, None); 3], Unavailable, None),
            (0, 0, vec![(Unavailable, None); 3], Unavailable, Unknown),
            (1, 1, vec![(Unavailable, None); 3], Unavailable, Unknown),
            (0, 2, vec![(Unavailable, None), (Unavailable, None), (Unavailable, Unknown)], Unavailable, Unknown),
            (0, 2, vec![(Rejected, None); 3], Rejected, None),
            (0, 2, vec![(Rejected, None), (Rejected, None), (Unavailable, None)], Unavailable, None),
        ];
        for (yes, no, failures, kind, effect) in table {
            let failures: Vec<_> = failures.into_iter().map(|(kind, effect)| failure(kind, effect)).collect();
            let tally = Tally { verdict: Verdict::Failed, yes: vec![(); yes], no, failures };
            let error = explain(&tally, 5, Duration::from_millis(50), "redlock", "acquire");
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{tally:?}");
            assert!(error.to_string().contains("of 5 nodes answered and 3 are needed"), "{error}");
        }
    }
}
