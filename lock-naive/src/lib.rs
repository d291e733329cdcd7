//! The locks people write first, kept in Redis as published, wrong where the originals are wrong.
