use lock_core::ClaimId;

/// How the nodes of a lock are named. The two sides of a lock must have the same naming: Curator and kazoo do not see each
/// other's nodes, and a child of the other naming under a lock is an error here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Naming {
    /// `_c_<uuid>-lock-<sequence>`, as Apache Curator's `InterProcessMutex` names them (Java). The default.
    #[default]
    Curator,
    /// `<32 hex digits>__lock__<sequence>`, as kazoo's `Lock` names them (Python).
    Kazoo,
}

impl Naming {
    /// What the names of a claim's nodes begin with, by which they are found again; the server adds the sequence.
    pub(crate) fn stem(self, claim: ClaimId) -> String {
        let hex = format!("{:032x}", claim.bits());
        match self {
            Self::Curator => {
                format!("_c_{}-{}-{}-{}-{}-lock-", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
            }
            Self::Kazoo => format!("{hex}__lock__"),
        }
    }

    /// The sequence of a child, if it is a contender of this naming: one whose name ends in our word and ten digits.
    pub(crate) fn sequence(self, child: &str) -> Option<i64> {
        let word = match self {
            Self::Curator => "lock-",
            Self::Kazoo => "__lock__",
        };
        let sequence = &child[child.rfind(word)? + word.len()..];
        // The counter is signed, and its overflow shows as a minus sign.
        let digits = sequence.strip_prefix('-').unwrap_or(sequence);
        if digits.len() < 10 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        sequence.parse().ok()
    }

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Curator => Self::Kazoo,
            Self::Kazoo => Self::Curator,
        }
    }

    pub(crate) const fn whose(self) -> &'static str {
        match self {
            Self::Curator => "Curator",
            Self::Kazoo => "kazoo",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_as_curator_and_kazoo_name_theirs() {
        let id = ClaimId::random();
        let hex = format!("{:032x}", id.bits());
        let curator = Naming::Curator.stem(id);
        assert_eq!(curator.len(), "_c_8ef85463-0bb3-4529-9249-767028c89b94-lock-".len());
        assert_eq!(curator.replace('-', ""), format!("_c_{hex}lock"));
        assert_eq!(Naming::Kazoo.stem(id), format!("{hex}__lock__"));
        for naming in [Naming::Curator, Naming::Kazoo] {
            let node = format!("{}0000000042", naming.stem(id));
            assert_eq!((naming.sequence(&node), naming.other().sequence(&node)), (Some(42), None));
        }
    }

    #[test]
    fn contenders_are_told_from_strangers() {
        let table = [
            ("117149f6201e4dd59f3d67e24785d52a__lock__0000000007", None, Some(7)),
            ("_c_8ef85463-0bb3-4529-9249-767028c89b94-lock-0000000007", Some(7), None),
            ("117149f6201e4dd59f3d67e24785d52a-lock-0000000007", Some(7), None),
            ("lock-0000000007", Some(7), None),
            ("x__lock__-lock-0000000007", Some(7), None),
            ("x-lock-__lock__0000000007", None, Some(7)),
            ("x-lock--2147483648", Some(-2_147_483_648), None),
            ("x-lock-0000002147483648123", Some(2_147_483_648_123), None),
            ("x-lock-foo-0000000007", None, None),
            ("write-0000000007", None, None),
            ("x-lock-7", None, None),
            ("x-__LOCK__0000000007", None, None),
            ("x-lock-", None, None),
            ("0", None, None),
        ];
        for (child, curator, kazoo) in table {
            assert_eq!((Naming::Curator.sequence(child), Naming::Kazoo.sequence(child)), (curator, kazoo), "{child}");
        }
    }
}
