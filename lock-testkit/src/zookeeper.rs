mod member;

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io, thread};

use lock_core::Moment;

use self::member::{ANSWER_LIMIT, EARLY_ANSWER_LIMIT, Member, Ports, Program};
use crate::fault::Proxy;
use crate::{TempFolder, act};

/// How long an ensemble may take until every member serves. One member alone needs about a second.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A private `ZooKeeper`, of one member or of several, on 127.0.0.1, with ports and a temporary folder of its own. Dropping
/// it kills the servers and removes the folder; when this process is killed, they go too.
///
/// The servers answer every four-letter command and do not wait for the disk, so a kill loses nothing and a power failure
/// would. What is written stays over a [`restart`](ZooKeeperEnsemble::restart), unless it is [wiped](ZooKeeperEnsemble::wipe).
/// Every method is synchronous.
///
/// It takes the jars of Debian's package `zookeeper` from `/usr/share/java`, or the class path that the variable
/// `HASP_ZOOKEEPER_CLASSPATH` names, and `java` on PATH. It needs Linux.
///
/// # Examples
///
/// ```
/// use lock_testkit::ZooKeeperEnsemble;
///
/// let ensemble = ZooKeeperEnsemble::start(1)?;
/// assert!(ensemble.command(0, "ruok")?.starts_with("imok"));
/// println!("connect to {}", ensemble.hosts());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ZooKeeperEnsemble {
    // Before the folder, so that they have ended when the folder goes.
    members: Vec<Mutex<Member>>,
    ports: Vec<Ports>,
    links: Vec<Link>,
    _folder: TempFolder,
}

impl ZooKeeperEnsemble {
    /// Starts an ensemble of `members`, with a tick of 200 ms, so that a session may last from 400 ms to 4 s. It returns
    /// when every member serves.
    ///
    /// # Errors
    ///
    /// `NotFound` without jars or Java, with what to do; else if a server does not start, with the end of its log.
    ///
    /// # Panics
    ///
    /// If `members` is zero.
    pub fn start(members: usize) -> io::Result<Self> {
        Self::builder(members).start()
    }

    /// An ensemble of `members` with options.
    ///
    /// # Panics
    ///
    /// If `members` is zero.
    pub fn builder(members: usize) -> ZooKeeperEnsembleBuilder {
        assert!(members > 0, "an ensemble has at least one member");
        ZooKeeperEnsembleBuilder {
            members,
            tick: Duration::from_millis(200),
            config: String::new(),
            properties: Vec::new(),
            environment: Vec::new(),
            links: false,
        }
    }

    /// How many members it has, alive or not.
    #[must_use]
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The connect string with every member, such as `127.0.0.1:12345,127.0.0.1:12346`.
    #[must_use]
    pub fn hosts(&self) -> String {
        let addrs: Vec<_> = (0..self.size()).map(|member| self.addr(member).to_string()).collect();
        addrs.join(",")
    }

    /// Where a member listens for clients; the same for as long as this value lives. Members count from 0.
    ///
    /// # Panics
    ///
    /// If there is no such member, as with every method that names one.
    #[must_use]
    pub fn addr(&self, member: usize) -> SocketAddr {
        self.ports[member].client_addr()
    }

    /// Sends a member a four-letter command, such as `srvr`, `mntr` or `wchs`, and reads the answer.
    ///
    /// # Errors
    ///
    /// If it does not answer within 5 s.
    pub fn command(&self, member: usize, command: &str) -> io::Result<String> {
        self.ports[member].ask(command, ANSWER_LIMIT)
    }

    /// The member that leads; none while there is no majority, or while an election goes on.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        (0..self.size()).find(|member| {
            let mode = self.ports[*member].mode(ANSWER_LIMIT);
            mode.is_ok_and(|mode| mode.is_some_and(|mode| mode == "leader" || mode == "standalone"))
        })
    }

    /// Kills a member with SIGKILL, and returns when it is gone.
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    pub fn kill(&self, member: usize) -> io::Result<()> {
        self.tell(member, "is killed");
        self.member(member).process.kill()
    }

    /// Stops a member with SIGSTOP: connections are accepted by the kernel and stay silent.
    ///
    /// # Errors
    ///
    /// If it is not running.
    pub fn stop(&self, member: usize) -> io::Result<()> {
        self.tell(member, "is stopped");
        self.member(member).process.stop()
    }

    /// Lets a member run on after [`stop`](ZooKeeperEnsemble::stop).
    ///
    /// # Errors
    ///
    /// If it is not running.
    pub fn cont(&self, member: usize) -> io::Result<()> {
        self.tell(member, "goes on");
        self.member(member).process.cont()
    }

    /// Kills a member if it runs, and starts it anew on the same ports with the data it had. It returns when the member
    /// serves, for which a majority of the ensemble must run.
    ///
    /// # Errors
    ///
    /// If it does not start, with the end of its log.
    pub fn restart(&self, member: usize) -> io::Result<()> {
        self.tell(member, "is started anew");
        self.member(member).restart()?;
        self.await_service(member)
    }

    /// Kills a member and removes its data. [`restart`](ZooKeeperEnsemble::restart) then starts it empty.
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    pub fn wipe(&self, member: usize) -> io::Result<()> {
        self.tell(member, "is killed, and its data removed");
        self.member(member).wipe()
    }

    /// Cuts a member off from the others, which goes on to serve its clients for some ticks. Only with
    /// [`links`](ZooKeeperEnsembleBuilder::links), else it does nothing.
    pub fn isolate(&self, member: usize) {
        self.tell(member, "is cut off from the others");
        self.links_of(member).for_each(Proxy::black_hole);
    }

    /// Ends [`isolate`](ZooKeeperEnsemble::isolate).
    pub fn rejoin(&self, member: usize) {
        self.tell(member, "reaches the others again");
        self.links_of(member).for_each(Proxy::heal);
    }

    fn tell(&self, member: usize, what: &str) {
        act::tell(self.addr(member).port(), what);
    }

    fn links_of(&self, member: usize) -> impl Iterator<Item = &Proxy> {
        self.links.iter().filter(move |link| link.from == member || link.to == member).map(|link| &link.proxy)
    }

    /// What a member has logged since it was first started.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    pub fn log(&self, member: usize) -> io::Result<String> {
        self.member(member).log()
    }

    /// Waits until a member says that it serves, alone or as one of a majority.
    fn await_service(&self, member: usize) -> io::Result<()> {
        let limit = Moment::now().saturating_add(START_LIMIT);
        loop {
            let mode = self.ports[member].mode(EARLY_ANSWER_LIMIT);
            if matches!(mode, Ok(Some(_))) {
                return Ok(());
            }
            let running = self.member(member).process.is_running()?;
            if !running || limit.remaining().is_zero() {
                let log = self.log(member)?;
                let kind = match running {
                    _ if log.contains("Address already in use") => io::ErrorKind::AddrInUse,
                    true => io::ErrorKind::TimedOut,
                    false => io::ErrorKind::Other,
                };
                let what = if running { format!("does not serve: {mode:?}") } else { "ended at once".into() };
                return Err(io::Error::new(kind, format!("ZooKeeper's member {member} {what}; its log:\n{log}")));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn member(&self, member: usize) -> MutexGuard<'_, Member> {
        self.members[member].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ZooKeeperEnsemble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperEnsemble").field("hosts", &self.hosts()).finish_non_exhaustive()
    }
}

/// Options of a [`ZooKeeperEnsemble`].
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing until `start` is called"]
pub struct ZooKeeperEnsembleBuilder {
    members: usize,
    tick: Duration,
    config: String,
    properties: Vec<String>,
    environment: Vec<(OsString, OsString)>,
    links: bool,
}

impl ZooKeeperEnsembleBuilder {
    /// Sets the tick, in whole milliseconds: a session may last from 2 to 20 of them; 200 ms unless set.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Adds a line to the configuration file of every member, as zoo.cfg wants it.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.config = format!("{}{name}={value}\n", self.config);
        self
    }

    /// Sets a property of Java for every member, such as `znode.container.checkIntervalMs`: what zoo.cfg has no name for.
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.push(format!("-D{name}={value}"));
        self
    }

    /// Sets a variable of every member's environment, beside those of this process; each
    /// [`restart`](ZooKeeperEnsemble::restart) sets it again.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Lets the members reach each other through proxies, so that one can be [isolated](ZooKeeperEnsemble::isolate). Elections
    /// go past them.
    pub fn links(mut self) -> Self {
        self.links = true;
        self
    }

    /// Starts the members at once. It returns when every one serves.
    ///
    /// # Errors
    ///
    /// As for [`ZooKeeperEnsemble::start`].
    pub fn start(self) -> io::Result<ZooKeeperEnsemble> {
        const TRIES: usize = 5;

        let program = Program::find()?.with_properties(&self.properties).with_environment(&self.environment);
        let mut tries = 0;
        loop {
            tries += 1;
            match self.start_once(&program) {
                // Another process took a port between our look and the server's.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < TRIES => {}
                started => return started,
            }
        }
    }

    fn start_once(&self, program: &Program) -> io::Result<ZooKeeperEnsemble> {
        let folder = TempFolder::new("hasp-zookeeper-")?;
        let ports = (0..self.members).map(|_| Ports::free()).collect::<io::Result<Vec<_>>>()?;
        let links = if self.links { Link::between(&ports)? } else { Vec::new() };
        let mut members = Vec::new();
        for (member, own) in ports.iter().enumerate() {
            let config = format!(
                "tickTime={}\ninitLimit=100\nsyncLimit=25\nclientPortAddress=127.0.0.1\nclientPort={}\n\
                 maxClientCnxns=0\n4lw.commands.whitelist=*\nadmin.enableServer=false\n{}{}",
                self.tick.as_millis(),
                own.client_addr().port(),
                quorum(member, &ports, &links),
                self.config,
            );
            members.push(Mutex::new(Member::start(program.clone(), folder.path(), member + 1, &config)?));
        }
        let ensemble = ZooKeeperEnsemble { members, ports, links, _folder: folder };
        for member in 0..self.members {
            ensemble.await_service(member)?;
        }
        Ok(ensemble)
    }
}

/// The way from one member to the peers' port of another.
#[derive(Debug)]
struct Link {
    from: usize,
    to: usize,
    proxy: Proxy,
}

impl Link {
    fn between(ports: &[Ports]) -> io::Result<Vec<Self>> {
        let members = 0..ports.len();
        let pairs = members.clone().flat_map(|from| members.clone().map(move |to| (from, to)));
        let others = pairs.filter(|(from, to)| from != to);
        others.map(|(from, to)| Ok(Self { from, to, proxy: Proxy::start_opaque(ports[to].peers_addr())? })).collect()
    }
}

/// The lines that tell a member where all are, itself included; none for a single one.
fn quorum(member: usize, ports: &[Ports], links: &[Link]) -> String {
    if ports.len() == 1 {
        return String::new();
    }
    let line = |(to, ports): (usize, &Ports)| {
        let link = links.iter().find(|link| link.from == member && link.to == to);
        let peers = link.map_or_else(|| ports.peers_addr(), |link| link.proxy.addr());
        format!("server.{}={peers}:{}\n", to + 1, ports.election())
    };
    ports.iter().enumerate().map(line).collect()
}
