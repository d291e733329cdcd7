use std::time::Duration;
use std::{fmt, io, thread};

use lock_core::Moment;
use redis::RedisResult;

use super::{RedisServer, RedisServerBuilder, logs, start_all};

/// How long the sentinels may take to find each other, which takes half a second, and to begin a failover.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// The sentinels' times in milliseconds, where they have no option for them, until they have found each other. They would tell
/// each other of themselves every two seconds, and ask the master for its replicas every ten. And after a pause of two
/// seconds, as a busy machine makes it, they would do nothing for half a minute.
const TO_MEET: [&str; 8] =
    ["PUBLISH-PERIOD", "100", "INFO-PERIOD", "500", "TILT-TRIGGER", "60000", "TILT-PERIOD", "1000"];

/// And afterwards. A sentinel makes any other server that has called itself a master for four of these periods a replica.
/// The one that leads a failover may see only after a second that its replica is the master now, and tells the others then:
/// if they do not wait for that, they undo its work.
const THEN: [&str; 2] = ["PUBLISH-PERIOD", "1000"];

/// A private Redis under Sentinel: a master, its replica, and three sentinels that watch them, two of which must agree. Each
/// is a [`RedisServer`], to be killed, stopped and restarted.
///
/// A master that does not answer for two seconds is replaced, which takes a second or two more; a former master that comes
/// back is made a replica after four. It needs Redis 7.
///
/// When a panic drops it, as that of an assertion, it prints what the servers and the sentinels have logged.
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
        Self::builder().start()
    }

    /// The same with options.
    pub fn builder() -> RedisSentinelBuilder {
        RedisSentinelBuilder {
            server: RedisServer::builder().in_memory().config("repl-diskless-sync-delay", "0"),
            sentinel: RedisServer::builder().sentinel().in_memory(),
            password: None,
        }
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

    /// The URL of each sentinel: with its password if it has one, and of its TLS port if it has that.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::client_url).collect()
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
        let master = self.servers.iter().find(|server| server.peer_port() == port);
        Ok(master.ok_or_else(|| missing("the sentinels name a master that is none of ours"))?)
    }

    /// Has the sentinels replace a master that works: they agree with nobody, and the replica takes over with what it has.
    ///
    /// # Errors
    ///
    /// If the first sentinel that runs refuses; `TimedOut` if for a minute it has not heard enough of the replica.
    pub fn fail_over(&self) -> RedisResult<()> {
        let sentinel = self.sentinels.iter().find(|sentinel| sentinel.is_awake());
        let sentinel = sentinel.ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "no sentinel runs"))?;
        settle(sentinel, "the sentinel knows a good replica", || {
            match sentinel.command::<()>(&["SENTINEL", "FAILOVER", Self::NAME]) {
                // It has not been asked, or has not answered, for a second and a half.
                Err(error) if error.code() == Some("NOGOODSLAVE") => Ok(false),
                answer => answer.map(|()| true),
            }
        })?;
        Ok(())
    }
}

/// Options of a [`RedisSentinel`].
#[derive(Clone)]
#[must_use = "a builder starts nothing until `start` is called"]
pub struct RedisSentinelBuilder {
    server: RedisServerBuilder,
    sentinel: RedisServerBuilder,
    password: Option<String>,
}

impl RedisSentinelBuilder {
    /// Gives the default user of both servers a password; see [`RedisServerBuilder::password`].
    pub fn password(mut self, password: &str) -> Self {
        self.server = self.server.password(password).config("masterauth", password);
        self.password = Some(password.to_owned());
        self
    }

    /// Gives the default user of the sentinels a password.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel = self.sentinel.password(password).config("sentinel", &format!("sentinel-pass {password}"));
        self
    }

    /// Adds a line to the configuration file of each sentinel, such as an ACL user; see [`RedisServerBuilder::config`].
    pub fn sentinel_config(mut self, name: &str, value: &str) -> Self {
        self.sentinel = self.sentinel.config(name, value);
        self
    }

    /// Lets all five talk TLS to each other and to clients, with this certificate and its key, both in PEM. Behind the
    /// certificate stands that of its authority, because they check each other's.
    pub fn tls(mut self, certificate: &str, key: &str) -> Self {
        self.server = self.server.tls(certificate, key).config("tls-replication", "yes");
        self.sentinel = self.sentinel.tls(certificate, key).config("tls-replication", "yes");
        self
    }

    /// Starts all five.
    ///
    /// # Errors
    ///
    /// As for [`RedisSentinel::start`].
    pub fn start(self) -> io::Result<RedisSentinel> {
        let master = self.server.clone().start()?;
        let replica = self.server.config("replicaof", &format!("127.0.0.1 {}", master.peer_port())).start()?;
        settle(&replica, "the replica has its data", || {
            Ok(replica.command::<String>(&["INFO", "replication"])?.contains("master_link_status:up"))
        })?;
        let name = RedisSentinel::NAME;
        let mut sentinel = self
            .sentinel
            .config("sentinel", &format!("monitor {name} 127.0.0.1 {} 2", master.peer_port()))
            .config("sentinel", &format!("down-after-milliseconds {name} 2000"))
            .config("sentinel", &format!("failover-timeout {name} 3000"));
        if let Some(password) = &self.password {
            sentinel = sentinel.config("sentinel", &format!("auth-pass {name} {password}"));
        }
        let sentinels = start_all(vec![sentinel; 3])?;
        let set = |sentinel: &RedisServer, times: &[&str]| {
            sentinel.command::<()>(&[&["SENTINEL", "DEBUG"], times].concat()).map_err(io::Error::other)
        };
        for sentinel in &sentinels {
            set(sentinel, &TO_MEET)?;
        }
        for sentinel in &sentinels {
            settle(sentinel, "each sentinel knows the replica and two other sentinels", || {
                let info = sentinel.command::<String>(&["INFO", "sentinel"])?;
                Ok(info.contains("slaves=1,sentinels=3"))
            })?;
        }
        for sentinel in &sentinels {
            set(sentinel, &THEN)?;
        }
        Ok(RedisSentinel { sentinels, servers: vec![master, replica] })
    }
}

impl fmt::Debug for RedisSentinelBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSentinelBuilder").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Drop for RedisSentinel {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", logs(self.servers.iter().chain(&self.sentinels)));
        }
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
