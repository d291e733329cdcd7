//! What real servers, a bad network and bad input do to the locks; one file per theme.

mod access;
mod cancelled;
mod failures;
mod ground;
mod hostile;
mod input;
mod line;
mod nodes;
mod quiet;
mod replies;
mod runtimes;
mod sessions;
