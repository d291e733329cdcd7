//! What a lock is called on a node, and what its key holds.

use lock_core::{Claim, Effect, Error, ErrorKind, LockKey, Result};

/// The namespace of the fences. No lock has a key that begins so.
const FENCE: &str = "hasp-redlock-fence:";

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) lock: String,
    pub(crate) fence: Option<String>,
}

impl Names {
    pub(crate) fn new(
        prefix: &str,
        name: &LockKey,
        fenced: bool,
        backend: &str,
        operation: &'static str,
    ) -> Result<Self> {
        let lock = format!("{prefix}{name}");
        if lock.starts_with(FENCE) {
            let says = format!("keys that begin with `{FENCE}` are reserved; use another name or prefix");
            return Err(Error::new(ErrorKind::InvalidInput, Effect::None, backend, operation, says).with_key(name));
        }
        let fence = fenced.then(|| format!("{FENCE}{lock}"));
        Ok(Self { lock, fence })
    }

    /// The KEYS of a script that looks at the fence where there is one.
    pub(crate) fn all(&self) -> Vec<&str> {
        std::iter::once(&*self.lock).chain(self.fence.as_deref()).collect()
    }
}

/// A claim on the nodes: where, and as whom.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) names: Names,
    /// The claim in 32 hex digits.
    pub(crate) claim: String,
    /// The label behind a colon, or nothing.
    pub(crate) label: String,
}

impl Entry {
    pub(crate) fn new(names: Names, claim: &Claim) -> Self {
        let label = claim.label.as_ref().map(|label| format!(":{label}")).unwrap_or_default();
        Self { names, claim: format!("{:032x}", claim.id.bits()), label }
    }
}

/// What the key of a held lock holds: the claim, the number of the round that took it, and the label; nothing if another
/// library wrote it.
pub(crate) fn parse(value: &str) -> Option<(&str, Option<&str>)> {
    let (claim, rest) = value.split_once(':')?;
    let (round, label) = rest.split_once(':').map_or((rest, None), |(round, label)| (round, Some(label)));
    let is_hex = claim.len() == 32 && claim.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = !round.is_empty() && round.bytes().all(|byte| byte.is_ascii_digit());
    (is_hex && is_number).then_some((claim, label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_tells_claim_and_label() {
        let claim = "0123456789abcdef0123456789abcdef";
        assert_eq!(parse(&format!("{claim}:7")), Some((claim, None)));
        assert_eq!(parse(&format!("{claim}:7:host:1")), Some((claim, Some("host:1"))));
        for foreign in ["", "x", claim, &format!("{claim}:"), &format!("{claim}:x"), &format!("{}:7", &claim[1..])] {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn the_names_of_fences_are_reserved() {
        let key = LockKey::new("a").unwrap();
        let error = Names::new("hasp-redlock-fence:", &key, false, "redlock", "acquire").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let names = Names::new("hasp:", &key, true, "redlock", "acquire").unwrap();
        assert_eq!(names.all(), ["hasp:a", "hasp-redlock-fence:hasp:a"]);
    }
}
