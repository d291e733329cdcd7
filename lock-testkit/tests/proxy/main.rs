//! Every fault of the proxy, in front of a real Redis; one file for each kind.

#![allow(clippy::unwrap_used, reason = "a test's helpers may panic, as the test may")]

mod armed;
mod ground;
mod outages;
mod pace;
mod passing;
mod pushes;
mod replies;
mod requests;
