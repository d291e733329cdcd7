//! Which keys belong to a lock.
//!
//! `NAME/` is the queue of a lock: whoever has the key of the smallest create revision under it holds the lock, as for Go's
//! `concurrency.Mutex`, `etcdctl lock` and the server's Lock service, who count every key there. What else we keep lies
//! outside every queue.

use lock_core::{ClaimId, LockKey, Result};

use crate::error::invalid;
use crate::{Config, Names};

/// The segments under the prefix that are no locks. An escaped name has `%` only before two hex digits.
const LEASES: &str = "%leases/";
const UNDONE: &str = "%undone/";

/// Where the keys are.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    prefix: String,
    names: Names,
}

impl Layout {
    pub(crate) fn new(config: Config) -> Result<Self> {
        if config.prefix.contains(char::is_control) {
            return Err(invalid("connect", "the prefix has a control character; use printable text such as `hasp/`"));
        }
        Ok(Self { prefix: config.prefix, names: config.names })
    }

    /// Whether our locks can be told from other keys.
    pub(crate) fn is_own(&self) -> bool {
        !self.prefix.is_empty()
    }

    /// What every key in the queue of this lock begins with.
    pub(crate) fn queue(&self, key: &LockKey, operation: &'static str) -> Result<String> {
        let reserved = |name: &str| [LEASES, UNDONE].iter().any(|ours| format!("{name}/").starts_with(ours));
        if self.names == Names::Raw && reserved(key.as_str()) {
            let says = format!("raw names that begin with `{LEASES}` or `{UNDONE}` are reserved; use another name");
            return Err(invalid(operation, says).with_key(key));
        }
        Ok(format!("{}{}/", self.prefix, self.written(key.as_str())))
    }

    /// What a key must begin with whose lock's name begins with `prefix`.
    pub(crate) fn beginning_with(&self, prefix: &str) -> String {
        format!("{}{}", self.prefix, self.written(prefix))
    }

    /// The lock in whose queue `key` is; none for what is no lock.
    pub(crate) fn lock_of(&self, key: &[u8]) -> Option<LockKey> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&*self.prefix)?;
        if rest.starts_with(LEASES) || rest.starts_with(UNDONE) {
            return None;
        }
        let (name, _place) = rest.rsplit_once('/')?;
        let name = match self.names {
            Names::Raw => name.to_owned(),
            Names::Escaped => read(name)?,
        };
        LockKey::new(name).ok()
    }

    /// The key by which one of our clients is told that a lease has ended.
    pub(crate) fn marker(&self, instance: &str, lease: i64) -> String {
        format!("{}{lease:x}", self.markers(instance))
    }

    /// What the markers of one client begin with.
    pub(crate) fn markers(&self, instance: &str) -> String {
        format!("{}{LEASES}{instance}/", self.prefix)
    }

    /// The key that keeps requests of a claim that still come from taking a place under this lease.
    pub(crate) fn tombstone(&self, lease: i64, claim: ClaimId) -> String {
        format!("{}{UNDONE}{}", self.prefix, place_name(lease, claim))
    }

    fn written(&self, name: &str) -> String {
        match self.names {
            Names::Raw => name.to_owned(),
            Names::Escaped => name.replace('%', "%25").replace('/', "%2F"),
        }
    }
}

/// The key that a client uses in a queue, one claim after another.
pub(crate) fn common_place(queue: &str, instance: &str) -> String {
    format!("{queue}{instance}")
}

/// The key of a claim that shares the queue with another of its client.
pub(crate) fn place(queue: &str, lease: i64, claim: ClaimId) -> String {
    format!("{queue}{}", place_name(lease, claim))
}

/// What our keys in a queue hold: whose they are, and the label.
pub(crate) fn value(claim: ClaimId, label: Option<&str>) -> String {
    match label {
        Some(label) => format!("{:032x}:{label}", claim.bits()),
        None => format!("{:032x}", claim.bits()),
    }
}

/// Whether a key that holds this is the claim's.
pub(crate) fn is_of(claim: ClaimId, value: &[u8]) -> bool {
    value.get(..CLAIM).is_some_and(|id| id == self::value(claim, None).as_bytes())
}

/// The label in a value; foreign keys have none.
pub(crate) fn label(value: &[u8]) -> Option<String> {
    let label = value.get(CLAIM..)?.strip_prefix(b":")?;
    Some(String::from_utf8_lossy(label).into_owned())
}

/// How many digits a claim has.
const CLAIM: usize = 32;

/// The lease at the end of a marker.
pub(crate) fn lease_of_marker(markers: &str, key: &[u8]) -> Option<i64> {
    i64::from_str_radix(std::str::from_utf8(key).ok()?.strip_prefix(markers)?, 16).ok()
}

fn place_name(lease: i64, claim: ClaimId) -> String {
    format!("{lease:x}-{:032x}", claim.bits())
}

/// The name of which this is the escaped form.
fn read(written: &str) -> Option<String> {
    let mut parts = written.split('%');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        name.push(match part.get(..2)? {
            "25" => '%',
            "2F" => '/',
            _ => return None,
        });
        name.push_str(&part[2..]);
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const NAMES: [&str; 16] = [
        "a",
        "a/b",
        "a/",
        "/a",
        "/",
        "//",
        "a%2Fb",
        "a%252Fb",
        "%",
        "%25",
        "%2",
        "%leases",
        "%undone/x",
        "ü/🔒",
        "a b",
        "a",
    ];

    fn layout(prefix: &str, names: Names) -> Layout {
        Layout::new(Config::new().with_prefix(prefix).with_names(names)).unwrap()
    }

    fn queue(layout: &Layout, name: &str) -> String {
        layout.queue(&LockKey::new(name).unwrap(), "acquire").unwrap()
    }

    #[test]
    fn an_escaped_name_is_one_segment_and_can_be_read_back() {
        let layout = layout("hasp/", Names::Escaped);
        for name in NAMES {
            let queue = queue(&layout, name);
            assert_eq!(queue.matches('/').count(), 2, "{queue}");
            let place = place(&queue, 0x1f, ClaimId::random());
            assert_eq!(layout.lock_of(place.as_bytes()).unwrap().as_str(), name);
        }
        assert_eq!(queue(&layout, "a/b"), "hasp/a%2Fb/");
        assert_eq!(queue(&layout, "a%2Fb"), "hasp/a%252Fb/");
    }

    #[test]
    fn no_two_names_share_a_queue_and_none_nests_in_another() {
        let layout = layout("", Names::Escaped);
        let names: HashSet<_> = NAMES.into_iter().collect();
        let queues: HashSet<_> = names.iter().map(|name| queue(&layout, name)).collect();
        assert_eq!(queues.len(), names.len());
        for one in &queues {
            assert!(queues.iter().all(|other| one == other || !one.starts_with(&**other)), "{one}");
        }
    }

    #[test]
    fn what_is_no_lock_lies_outside_every_queue() {
        let claim = ClaimId::random();
        for names in [Names::Escaped, Names::Raw] {
            for prefix in ["", "hasp/", "/team/a/"] {
                let layout = layout(prefix, names);
                for other in [layout.marker("7", 31), layout.tombstone(31, claim)] {
                    assert_eq!(layout.lock_of(other.as_bytes()), None, "{other}");
                    for name in NAMES {
                        if let Ok(queue) = layout.queue(&LockKey::new(name).unwrap(), "acquire") {
                            assert!(!other.starts_with(&queue), "{other} lies in {queue}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn raw_names_stay_as_they_are_but_for_the_reserved_ones() {
        let layout = layout("", Names::Raw);
        assert_eq!(queue(&layout, "/it/one"), "/it/one/");
        assert_eq!(layout.lock_of(b"/it/one/1f-2").unwrap().as_str(), "/it/one");
        for name in ["%leases", "%leases/x", "%undone", "%undone/x/y"] {
            let error = layout.queue(&LockKey::new(name).unwrap(), "acquire").unwrap_err();
            assert_eq!(error.kind(), lock_core::ErrorKind::InvalidInput, "{error}");
        }
        assert_eq!(queue(&layout, "%leasesx"), "%leasesx/");
    }

    #[test]
    fn a_value_tells_its_claim_and_label() {
        let (claim, other) = (ClaimId::random(), ClaimId::random());
        for (given, found) in [(None, None), (Some("host 7"), Some("host 7")), (Some("a:b"), Some("a:b"))] {
            let value = value(claim, given);
            assert!(is_of(claim, value.as_bytes()) && !is_of(other, value.as_bytes()));
            assert_eq!(label(value.as_bytes()).as_deref(), found);
        }
        for foreign in [&b""[..], b"x", b"a value of some other program, and a long one"] {
            assert!(!is_of(claim, foreign) && label(foreign).is_none());
        }
    }

    #[test]
    fn a_marker_tells_its_lease() {
        let layout = layout("hasp/", Names::Escaped);
        assert_eq!(lease_of_marker(&layout.markers("7"), layout.marker("7", 31).as_bytes()), Some(31));
    }

    #[test]
    fn an_unescaped_foreign_key_is_no_lock_of_ours() {
        let layout = layout("hasp/", Names::Escaped);
        for key in ["hasp/a%b/1", "hasp/a%2/1", "hasp/x", "other/a/1", "hasp//1"] {
            assert_eq!(layout.lock_of(key.as_bytes()), None, "{key}");
        }
    }
}
