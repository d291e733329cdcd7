//! For whoever writes a lock backend: conformance suite, private servers, faults, history and its checkers.
