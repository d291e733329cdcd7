//! One file per question a user asks.
