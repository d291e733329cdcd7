use std::fmt;

/// Who holds a lock: 128 random bits.
///
/// Each acquisition draws its own owner, so that an old guard can never release a newer one of the same lock object. Make
/// one yourself only to re-enter a lock, with [`Lock::owner`](crate::Lock::owner).
///
/// `Debug` shows no more than the first four hex digits: whoever knows an owner can release its lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(u128);

impl Owner {
    /// Draws an owner from the operating system's random numbers, anew in every process and after every fork.
    ///
    /// # Panics
    ///
    /// If the operating system has no random numbers to give.
    #[must_use]
    pub fn random() -> Self {
        let [bits] = random_bits();
        Self(bits)
    }

    /// The owner with these bits, for one that is kept or passed on by other means.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits, to be written to a store.
    #[must_use]
    pub const fn bits(self) -> u128 {
        self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({:04x}…)", self.0 >> 112)
    }
}

/// As many random numbers of 128 bits, for the price of one call of the operating system.
pub(crate) fn random_bits<const N: usize>() -> [u128; N] {
    let mut bits = [[0; 16]; N];
    getrandom::fill(bits.as_flattened_mut()).expect("the operating system's random numbers");
    bits.map(u128::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_tell_the_owner() {
        let owner = Owner::from_bits(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(format!("{owner:?}"), "Owner(0123…)");
    }

    #[test]
    fn owners_differ() {
        assert_ne!(Owner::random(), Owner::random());
    }
}
