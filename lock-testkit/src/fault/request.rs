use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// Which requests, or pushes, a fault is for: a predicate over a command and its arguments. What they are in each protocol
/// is said where a [`Proxy`](super::Proxy) for it is started.
///
/// Many scripts of Redis travel as EVALSHA, so look at more than the name: the script's hash is the first argument, and the keys
/// follow.
///
/// # Examples
///
/// ```
/// use bytes::Bytes;
/// use lock_testkit::fault::Request;
///
/// let of_a = Request::command("EVALSHA").with_argument("hasp:{a}");
/// assert!(of_a.matches(&["evalsha", "6b1f", "1", "hasp:{a}", "owner"].map(Bytes::from)));
/// assert!(!of_a.matches(&["EVALSHA", "6b1f", "1", "hasp:{b}", "owner"].map(Bytes::from)));
///
/// let long = Request::matching(|arguments| arguments.len() > 3);
/// assert!(long.matches(&["MGET", "a", "b", "c"].map(Bytes::from)));
/// ```
#[derive(Clone)]
pub struct Request(Arc<Predicate>);

type Predicate = dyn Fn(&[Bytes]) -> bool + Send + Sync;

impl Request {
    /// Every request.
    #[must_use]
    pub fn any() -> Self {
        Self::matching(|_| true)
    }

    /// The requests with this command, in capitals or not.
    #[must_use]
    pub fn command(name: &str) -> Self {
        let name = name.to_owned();
        Self::matching(move |arguments| {
            arguments.first().is_some_and(|first| first.eq_ignore_ascii_case(name.as_bytes()))
        })
    }

    /// The requests for which `predicate` holds; the command itself is the first argument. It is called on the proxy's
    /// thread, so it must not block.
    #[must_use]
    pub fn matching(predicate: impl Fn(&[Bytes]) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(predicate))
    }

    /// Of these, the requests that have `argument` somewhere behind the command.
    #[must_use]
    pub fn with_argument(self, argument: impl AsRef<[u8]>) -> Self {
        let wanted = Bytes::copy_from_slice(argument.as_ref());
        self.and(move |arguments| arguments.iter().skip(1).any(|argument| *argument == wanted))
    }

    /// Of these, the requests that have `part` somewhere inside an argument behind the command.
    #[must_use]
    pub fn with_part(self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref().to_vec();
        self.and(move |arguments| {
            arguments
                .iter()
                .skip(1)
                .any(|argument| part.is_empty() || argument.windows(part.len()).any(|window| window == part))
        })
    }

    /// Whether it is for a request with these arguments.
    #[must_use]
    pub fn matches(&self, arguments: &[Bytes]) -> bool {
        (self.0)(arguments)
    }

    fn and(self, predicate: impl Fn(&[Bytes]) -> bool + Send + Sync + 'static) -> Self {
        Self::matching(move |arguments| self.matches(arguments) && predicate(arguments))
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Request(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_must_hold() {
        let request = Request::command("eval").with_argument("k").with_part("call(");
        for (arguments, matches) in [
            (["EVAL", "redis.call('GET')", "k"], true),
            (["EVAL", "redis.call('GET')", "kk"], false),
            (["EVAL", "return 1", "k"], false),
            (["GET", "redis.call('GET')", "k"], false),
        ] {
            assert_eq!(request.matches(&arguments.map(Bytes::from)), matches, "{arguments:?}");
        }
        assert!(
            !Request::command("k").with_argument("k").matches(&["k".into()]),
            "the command is no argument of itself"
        );
        assert!(Request::any().matches(&[]));
    }
}
