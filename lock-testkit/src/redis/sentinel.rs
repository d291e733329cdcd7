use std::time::Duration;
use std::{io, thread};

use lock_core::Moment;
use redis::RedisResult;

use super::{RedisServer, start_all};

/// How long the sentinels may take to find each other; they need half a second.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// A private Redis under Sentinel: a master, its replica, and three sentinels that watch them, two of which must agree. Each
/// is a [`RedisServer`], to be killed, stopped and restarted.
///
/// A master that does not answer for a second is replaced, which takes a second or two more; a former master that comes
/// back is made a replica. It needs Redis 7.
///
/// # Examples
///
/// ```
/// use lock_testkit::RedisSentinel;
///
/// let redis = RedisSentinel::start()?;
/// assert_eq!(redis.master()?.addr(), redis.servers()[0].addr());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RedisSentinel {
    sentinels: Vec<RedisServer>,
    servers: Vec<RedisServer>,
}

impl RedisSentinel {
    /// The name under which the sentinels know the master.
    pub const NAME: &str = "private";

    /// Starts all five, and returns when the replica has its data and the sentinels know the replica and each other: after
    /// about a second.
    ///
    /// # Errors
    ///
    /// As for [`RedisServer::start`]; `TimedOut` if the sentinels do not find each other within a minute.
    pub fn start() -> io::Result<Self> {
        let server = || RedisServer::builder().config("repl-diskless-sync-delay", "0");
        let master = server().start()?;
        let replica = server().config("replicaof", &format!("127.0.0.1 {}", master.port())).start()?;
        settle(&replica, "the replica has its data", || {
            Ok(replica.command::<String>(&["INFO", "replication"])?.contains("master_link_status:up"))
        })?;
        let monitor = format!("monitor {} 127.0.0.1 {} 2", Self::NAME, master.port());
        let sentinel = RedisServer::builder()
            .sentinel()
            .config("sentinel", &monitor)
            .config("sentinel", &format!("down-after-milliseconds {} 1000", Self::NAME))
            .config("sentinel", &format!("failover-timeout {} 3000", Self::NAME));
        let sentinels = start_all(vec![sentinel; 3])?;
        for sentinel in &sentinels {
            // They would tell each other of themselves every two seconds, and ask the master for its replicas every ten.
            // And after a pause of two seconds, as a busy machine makes it, they would do nothing for half a minute.
            let faster = [
                "SENTINEL",
                "DEBUG",
                "PUBLISH-PERIOD",
                "100",
                "INFO-PERIOD",
                "500",
                "TILT-TRIGGER",
                "60000",
                "TILT-PERIOD",
                "1000",
            ];
            sentinel.command::<()>(&faster).map_err(io::Error::other)?;
        }
        for sentinel in &sentinels {
            settle(sentinel, "each sentinel knows the replica and two other sentinels", || {
                let info = sentinel.command::<String>(&["INFO", "sentinel"])?;
                Ok(info.contains("slaves=1,sentinels=3"))
            })?;
        }
        Ok(Self { sentinels, servers: vec![master, replica] })
    }

    /// The two servers: the one that was the master at first, and its replica.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The three sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The URL of each sentinel.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// The master now, by what the first sentinel that runs says.
    ///
    /// # Errors
    ///
    /// If no sentinel answers.
    pub fn master(&self) -> RedisResult<&RedisServer> {
        let missing = |says: &str| io::Error::new(io::ErrorKind::NotConnected, says.to_owned());
        let sentinel = self.sentinels.iter().find(|sentinel| sentinel.is_awake());
        let sentinel = sentinel.ok_or_else(|| missing("no sentinel runs"))?;
        let (_, port): (String, u16) = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME])?;
        let master = self.servers.iter().find(|server| server.port() == port);
        Ok(master.ok_or_else(|| missing("the sentinels name a master that is none of ours"))?)
    }

    /// Has the sentinels replace a master that works: they agree with nobody, and the replica takes over with what it has.
    ///
    /// # Errors
    ///
    /// If the first sentinel that runs refuses.
    pub fn fail_over(&self) -> RedisResult<()> {
        let sentinel = self.sentinels.iter().find(|sentinel| sentinel.is_awake());
        let sentinel = sentinel.ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "no sentinel runs"))?;
        sentinel.command(&["SENTINEL", "FAILOVER", Self::NAME])
    }
}

fn settle(node: &RedisServer, what: &str, condition: impl Fn() -> RedisResult<bool>) -> io::Result<()> {
    let limit = Moment::now().saturating_add(SETTLE_LIMIT);
    while !condition().map_err(io::Error::other)? {
        if limit.remaining().is_zero() {
            let says = format!("not within {SETTLE_LIMIT:?}: {what}; the log of {node:?}:\n{}", node.log()?);
            return Err(io::Error::new(io::ErrorKind::TimedOut, says));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
