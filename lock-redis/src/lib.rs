//! Distributed locks kept in one Redis: token and reentrant.
