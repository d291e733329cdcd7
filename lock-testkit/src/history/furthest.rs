/// Of what was put in, the one that reaches furthest, and the one that does so among those of other owners: one owner may
/// hold a lock more than once.
#[derive(Debug)]
pub(super) struct Furthest<O, T> {
    first: Option<Reach<O, T>>,
    of_others: Option<Reach<O, T>>,
}

#[derive(Clone, Copy, Debug)]
struct Reach<O, T> {
    until: u64,
    owner: Option<O>,
    what: T,
}

impl<O: Copy + PartialEq, T: Copy> Furthest<O, T> {
    pub(super) const fn new() -> Self {
        Self { first: None, of_others: None }
    }

    /// Puts in something that reaches until there. Without an owner it is of the same owner as nothing else.
    pub(super) fn put(&mut self, until: u64, owner: Option<O>, what: T) {
        let reach = Reach { until, owner, what };
        match self.first {
            Some(first) if first.until >= until => {
                let is_news = self.of_others.is_none_or(|other| until > other.until);
                if is_news && !is_same(first.owner, owner) {
                    self.of_others = Some(reach);
                }
            }
            before => {
                if before.is_some_and(|before| !is_same(before.owner, owner)) {
                    self.of_others = before;
                }
                self.first = Some(reach);
            }
        }
    }

    /// What reaches furthest among those that are not of this owner, and how far.
    pub(super) fn besides(&self, owner: Option<O>) -> Option<(u64, T)> {
        let found = [self.first, self.of_others].into_iter().flatten().find(|reach| !is_same(reach.owner, owner));
        found.map(|reach| (reach.until, reach.what))
    }
}

fn is_same<O: Copy + PartialEq>(owner: Option<O>, other: Option<O>) -> bool {
    owner.is_some() && owner == other
}
