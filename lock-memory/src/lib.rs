//! A distributed lock's contract kept in one process: the embedded default of Hasp.
