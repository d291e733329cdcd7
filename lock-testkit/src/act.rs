//! What the kit does to servers is told to `tracing`: in the log of a test, a fault stands where it happened.

/// Commands that change nothing, so that nobody needs to hear of them.
const LOOKS: &[&str] = &[
    "DBSIZE", "EXISTS", "GET", "HGETALL", "HVALS", "INFO", "KEYS", "LRANGE", "PING", "PTTL", "PUBSUB", "ROLE", "SCAN",
    "TTL", "TYPE", "WAIT",
];

/// Says what is done to the server at a port.
pub(crate) fn tell(port: u16, what: &str) {
    tracing::info!(target: "lock_testkit::act", port, "{what}");
}

/// Says what a Redis is told, unless that is only a look.
pub(crate) fn tell_command(port: u16, arguments: &[&str]) {
    const WIDTH: usize = 24;

    let is = |at: usize, name: &str| arguments.get(at).is_some_and(|word| word.eq_ignore_ascii_case(name));
    if LOOKS.iter().any(|name| is(0, name)) || (is(0, "CONFIG") && is(1, "GET")) {
        return;
    }
    let short = |word: &&str| {
        let cut: String = word.chars().take(WIDTH).collect();
        if cut.len() < word.len() { cut + ".." } else { cut }
    };
    tell(port, &format!("is told {}", arguments.iter().map(short).collect::<Vec<_>>().join(" ")));
}
