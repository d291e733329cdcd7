//! The foreign clients, and what is known of each.

/// A foreign client and the strategy of ours that shares its locks.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) name: &'static str,
    /// How its driver is started, with the folder of what `./x interop` has fetched and built for `{fetched}`, and that
    /// of the drivers' sources for `{drivers}`.
    pub(crate) command: &'static [&'static str],
    pub(crate) store: Store,
    /// Our strategy, as our own driver knows it.
    pub(crate) ours: &'static str,
    /// What stands before a lock's name in theirs, so that both mean the same lock.
    pub(crate) prefix: &'static str,
    /// Whether its holds are kept alive while it runs.
    pub(crate) renews: bool,
    /// Whether its waiters are told of our releases. Those that are not ask again after a pause.
    pub(crate) listens: bool,
    /// Whether its releases tell our waiters.
    pub(crate) tells: bool,
    pub(crate) reentrant: bool,
    pub(crate) late_release: LateRelease,
}

/// How a client answers its own release of a lock that it has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateRelease {
    /// It is told that the lock was not its own any more.
    Refused,
    /// It may be told that all went well.
    Unnoticed,
    /// Pausing its driver does not pause the holder.
    Untried,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Store {
    Etcd,
    Redis,
    ZooKeeper,
}

pub(crate) const CLIENTS: &[Client] = &[
    Client {
        name: "redisson",
        command: &[
            "java",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            "{fetched}/redisson/classes:{fetched}/redisson/lib/*",
            "Driver",
        ],
        store: Store::Redis,
        ours: "reentrant",
        prefix: "",
        renews: true,
        listens: true,
        tells: true,
        reentrant: true,
        late_release: LateRelease::Refused,
    },
    Client {
        name: "redis-py",
        command: &["{fetched}/redis-py/bin/python", "{drivers}/redis-py/driver.py"],
        store: Store::Redis,
        ours: "token-unprefixed",
        prefix: "",
        renews: false,
        listens: false,
        tells: false,
        reentrant: false,
        late_release: LateRelease::Refused,
    },
    // The other way to meet on one key: theirs is named as ours is with the default prefix.
    Client {
        name: "redsync",
        command: &["{fetched}/redsync/driver"],
        store: Store::Redis,
        ours: "token",
        prefix: "hasp:",
        renews: false,
        listens: false,
        tells: false,
        reentrant: false,
        late_release: LateRelease::Refused,
    },
    Client {
        name: "etcd-go",
        command: &["{fetched}/etcd-go/driver"],
        store: Store::Etcd,
        ours: "etcd",
        prefix: "hasp/",
        renews: true,
        listens: true,
        tells: true,
        reentrant: false,
        late_release: LateRelease::Unnoticed,
    },
    Client {
        name: "etcdctl",
        command: &["python3", "{drivers}/etcdctl/driver.py"],
        store: Store::Etcd,
        ours: "etcd-unprefixed",
        prefix: "",
        renews: true,
        listens: true,
        tells: true,
        reentrant: false,
        late_release: LateRelease::Untried,
    },
    Client {
        name: "curator",
        command: &[
            "java",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            "{fetched}/curator/classes:{fetched}/curator/lib/*",
            "Driver",
        ],
        store: Store::ZooKeeper,
        ours: "zookeeper-curator",
        prefix: "/hasp/",
        renews: true,
        listens: true,
        tells: true,
        reentrant: false,
        late_release: LateRelease::Unnoticed,
    },
    Client {
        name: "kazoo",
        command: &["{fetched}/kazoo/bin/python", "{drivers}/kazoo/driver.py"],
        store: Store::ZooKeeper,
        ours: "zookeeper-kazoo",
        prefix: "/hasp/",
        renews: true,
        listens: true,
        tells: true,
        reentrant: false,
        late_release: LateRelease::Unnoticed,
    },
];
