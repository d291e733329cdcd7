//! The file that a lab shares with its processes: 64-bit words in the machine's order, one table for all.
//!
//! The preloaded library and the crate compile this same text, so that they cannot disagree.

/// The first word. A file without it is not ours.
pub(crate) const MAGIC: i64 = i64::from_le_bytes(*b"haspclk1");

/// Where the first word is.
pub(crate) const MAGIC_AT: usize = 0;

/// Where the common offset is, in nanoseconds, as all offsets are.
pub(crate) const COMMON_AT: usize = 1;

/// How many processes fit.
pub(crate) const SLOTS: usize = 16_383;

/// The words of the whole table, and its length in bytes.
pub(crate) const WORDS: usize = (SLOTS + 1) * WORDS_PER_SLOT;
pub(crate) const BYTES: usize = WORDS * 8;

const WORDS_PER_SLOT: usize = 4;

/// Where a slot keeps the own offset of its REALTIME. The slot must be below [`SLOTS`].
pub(crate) const fn wall_at(slot: usize) -> usize {
    (slot + 1) * WORDS_PER_SLOT
}

/// Where a slot keeps the own offset of its MONOTONIC.
pub(crate) const fn monotonic_at(slot: usize) -> usize {
    wall_at(slot) + 1
}

/// Where a slot keeps the own offset of its BOOTTIME.
pub(crate) const fn boottime_at(slot: usize) -> usize {
    wall_at(slot) + 2
}

/// The variable that names the file.
pub(crate) const FILE_VARIABLE: &str = "HASP_CLOCK_FILE";

/// The variable that names the slot, in decimal.
pub(crate) const SLOT_VARIABLE: &str = "HASP_CLOCK_SLOT";
