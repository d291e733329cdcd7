//! The contenders of a lock, in their order. No I/O.

use crate::naming::Naming;

/// Who stands in line for a lock: the first one has it.
#[derive(Debug)]
pub(crate) struct Line {
    contenders: Vec<(i64, String)>,
}

/// Where a node stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing<'a> {
    /// It has the lock.
    First,
    /// It waits for this one, the only node that it needs to watch.
    Behind(&'a str),
    /// It is not there any more.
    Missing,
}

impl Line {
    /// The line that the children of a lock's path make; else the child that is of the other naming. What is of neither is
    /// nobody's place in line.
    pub(crate) fn new(children: Vec<String>, naming: Naming) -> Result<Self, String> {
        let mut contenders = Vec::with_capacity(children.len());
        for child in children {
            match naming.sequence(&child) {
                Some(sequence) => contenders.push((sequence, child)),
                None if naming.other().sequence(&child).is_some() => return Err(child),
                None => {}
            }
        }
        contenders.sort_unstable();
        Ok(Self { contenders })
    }

    pub(crate) fn first(&self) -> Option<&str> {
        self.contenders.first().map(|(_, name)| &**name)
    }

    pub(crate) fn waiters(&self) -> usize {
        self.contenders.len().saturating_sub(1)
    }

    /// The nodes of one claim, in their order.
    pub(crate) fn of<'a>(&'a self, stem: &'a str) -> impl Iterator<Item = &'a str> {
        self.contenders.iter().map(|(_, name)| &**name).filter(move |name| name.starts_with(stem))
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.contenders.retain(|(_, contender)| contender != name);
    }

    pub(crate) fn standing(&self, name: &str) -> Standing<'_> {
        match self.contenders.iter().position(|(_, contender)| contender == name) {
            Some(0) => Standing::First,
            Some(place) => Standing::Behind(&self.contenders[place - 1].1),
            None => Standing::Missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(children: &[&str]) -> Result<Line, String> {
        Line::new(children.iter().map(|child| (*child).to_owned()).collect(), Naming::Curator)
    }

    #[test]
    fn the_order_is_that_of_the_sequence_and_each_waits_for_the_one_before() {
        let mut line = line(&["z-lock-0000000009", "a-lock-0000000011", "m-lock-0000000010", "stranger"]).unwrap();
        assert_eq!((line.first(), line.waiters()), (Some("z-lock-0000000009"), 2));
        assert_eq!(line.standing("z-lock-0000000009"), Standing::First);
        assert_eq!(line.standing("a-lock-0000000011"), Standing::Behind("m-lock-0000000010"));
        line.remove("m-lock-0000000010");
        assert_eq!(line.standing("a-lock-0000000011"), Standing::Behind("z-lock-0000000009"));
        assert_eq!(line.standing("m-lock-0000000010"), Standing::Missing);
        assert_eq!(line.of("a-lock-").collect::<Vec<_>>(), ["a-lock-0000000011"]);
    }

    #[test]
    fn a_child_of_the_other_naming_is_named() {
        assert_eq!(line(&["a-lock-0000000001", "b__lock__0000000000"]).unwrap_err(), "b__lock__0000000000");
        assert_eq!(line(&[]).unwrap().first(), None);
    }
}
