//! Which fencing token a grant gets. No I/O and no clock.

/// What a node that gave its vote said of its fence and its clock, in the same step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The last token put down there; zero if there is none.
    pub(crate) last: u64,
    /// Whether this claim put it down.
    pub(crate) is_own: bool,
    /// The node's clock, in microseconds since 1970.
    pub(crate) time: u64,
}

/// The token to put down, from the readings of a majority: greater than every last one, and not below any of the clocks. A
/// claim that has got its token down before, and whose reply was lost, keeps it unless another has gone on from there.
pub(crate) fn proposal(readings: &[Reading]) -> u64 {
    let newest = readings.iter().map(|reading| (reading.last, reading.is_own)).max().unwrap_or_default();
    match newest {
        (last, true) => last,
        (last, false) => readings.iter().map(|reading| reading.time).fold(last + 1, u64::max),
    }
}

#[cfg(test)]
mod tests;
