#![allow(unsafe_code, reason = "memory that is shared with other processes")]

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::layout;

/// The offsets, in a file that the processes map too. Every word is read and written as a whole.
#[derive(Debug)]
pub(crate) struct Table {
    words: NonNull<AtomicI64>,
}

// SAFETY: the mapping belongs to no thread, and its words are atomic.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// Makes an empty file a table, with every offset zero.
    pub(crate) fn in_file(file: &File) -> io::Result<Self> {
        const LENGTH: NonZeroUsize = NonZeroUsize::new(layout::BYTES).expect("a table has words");
        // The kernel fills it with zeros, and keeps only the pages that are used.
        file.set_len(layout::BYTES as u64)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping touches no memory that is in use, and nobody shortens the file of a private folder.
        let words = unsafe { mmap(None, LENGTH, access, MapFlags::MAP_SHARED, file, 0) }?.cast();
        let table = Self { words };
        table.word(layout::MAGIC_AT).store(layout::MAGIC, Ordering::SeqCst);
        Ok(table)
    }

    /// An offset, in nanoseconds.
    pub(crate) fn offset(&self, at: usize) -> i64 {
        self.word(at).load(Ordering::SeqCst)
    }

    /// Adds to an offset.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it would pass 146 years; it stays as it is then.
    pub(crate) fn add(&self, at: usize, nanoseconds: i64) -> io::Result<()> {
        // So the sum of a common and an own offset fits.
        const FURTHEST: i64 = i64::MAX / 2;
        let sum = |offset: i64| offset.checked_add(nanoseconds).filter(|sum| (-FURTHEST..=FURTHEST).contains(sum));
        match self.word(at).fetch_update(Ordering::SeqCst, Ordering::SeqCst, sum) {
            Ok(_) => Ok(()),
            Err(_offset) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "no clock is moved by more than 146 years"))
            }
        }
    }

    fn word(&self, at: usize) -> &AtomicI64 {
        assert!(at < layout::WORDS, "the table has no word {at}");
        // SAFETY: the word lies within the mapping, which lives as long as `self`; all who share it use atomics.
        unsafe { self.words.add(at).as_ref() }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: no reference into the mapping outlives `self`. It cannot fail for what was mapped, and leaks if it does.
        let _ = unsafe { munmap(self.words.cast(), layout::BYTES) };
    }
}
