use std::ops::Range;

use fastrand::Rng;

use super::clock::Nanos;

/// What happens to messages while it is not calm. Each chance, from 0 to 1, is for one message.
#[derive(Clone, Debug)]
pub struct Network {
    /// How long a message takes that is delayed; those after it overtake it.
    pub long_delay: Range<Nanos>,
    /// That a message takes as long as that.
    pub delayed: f64,
    /// That it does not arrive.
    pub lost: f64,
    /// For a request only: a copy of it arrives as well, long after.
    pub doubled: f64,
    /// For a request only: nobody listens.
    pub refused: f64,
}

impl Network {
    /// Draws one for leases that last for about `span`. It is spared each trouble in half of the cases.
    #[must_use]
    pub fn draw(rng: &mut Rng, span: Nanos) -> Self {
        let mut chance = |most: f64| if rng.bool() { rng.f64() * most } else { 0.0 };
        Self {
            long_delay: 0..span * 3 / 2,
            delayed: chance(0.1),
            lost: chance(0.1),
            doubled: chance(0.2),
            refused: chance(0.05),
        }
    }
}
