//! Keys that have meant something to some store, or are hard to write. The unit tests have them too.

use lock_core::LockKey;

pub(crate) fn hostile_keys() -> Vec<LockKey> {
    let long = "é".repeat(256);
    let names = [
        "a",
        "a/b",
        "/a",
        "a/",
        "a//b",
        "/",
        ".",
        "..",
        "...",
        "a.",
        ".a",
        "%2F",
        "%",
        "%%",
        "a%2Fb",
        " ",
        "a b",
        "zookeeper",
        "é",
        "e\u{301}",
        "🔒",
        "\u{f8ff}",
        "_c_x-lock-0000000000",
        &long,
    ];
    names.into_iter().map(|name| LockKey::new(name).expect("it is a key")).collect()
}
