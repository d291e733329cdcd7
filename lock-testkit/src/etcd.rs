mod gateway;

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{env, fmt, thread};

use lock_core::Moment;
use serde_json::{Value, json};

use crate::port::Port;
use crate::program;
use crate::{Process, TempFolder, act};

/// How long a cluster may take until each member says that it is healthy; it needs 0.2 to 2 s.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A private etcd cluster of one or three members on 127.0.0.1, with ports and a temporary folder of its own. Dropping it
/// kills the members and removes the folder; when this process is killed, they go too.
///
/// Every method is synchronous and short, so it may be called from a test of either kind. The program is `etcd` on PATH, or
/// what the variable `HASP_ETCD` names. It needs etcd 3.4 and Linux.
///
/// Unless [`default_timing`](EtcdClusterBuilder::default_timing) is asked for, members send heartbeats every 50 ms and elect a
/// new leader after 250 ms. etcd derives the shortest ttl of a lease from that: 1 s here, and 2 s with its own timing.
///
/// # Examples
///
/// ```
/// use lock_testkit::EtcdCluster;
/// use serde_json::json;
///
/// let etcd = EtcdCluster::start()?;
/// // The JSON gateway takes and gives bytes in base64: "YQ==" is "a".
/// etcd.call("/v3/kv/put", &json!({ "key": "YQ==", "value": "MQ==" }))?;
/// etcd.member(0).restart()?;
/// assert_eq!(etcd.call("/v3/kv/range", &json!({ "key": "YQ==" }))?["count"], "1");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct EtcdCluster {
    // Before the folder, so that they have ended when the folder goes.
    members: Vec<EtcdMember>,
    _folder: TempFolder,
}

impl EtcdCluster {
    /// Starts a cluster of one member. It returns when the member is healthy.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no etcd, with what to do; else if it does not start, with the end of its log.
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// A cluster with options.
    pub fn builder() -> EtcdClusterBuilder {
        let (flags, environment) = (Vec::new(), Vec::new());
        EtcdClusterBuilder { members: 1, timing: Some((50, 250)), flags, environment, tls: None }
    }

    /// The members, in no order of rank.
    #[must_use]
    pub fn members(&self) -> &[EtcdMember] {
        &self.members
    }

    /// One member.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    #[must_use]
    pub fn member(&self, place: usize) -> &EtcdMember {
        &self.members[place]
    }

    /// The client URL of each member, such as `http://127.0.0.1:12345`.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(EtcdMember::url).collect()
    }

    /// The place of the member that leads now, as those say who answer.
    ///
    /// # Errors
    ///
    /// If no two of three members agree within 30 s.
    pub fn leader(&self) -> io::Result<usize> {
        let limit = Moment::now().saturating_add(Duration::from_secs(30));
        loop {
            let statuses: Vec<_> = self.members.iter().map(|member| member.status().ok()).collect();
            for (place, status) in statuses.iter().enumerate() {
                let Some(id) = status.as_ref().map(|status| &status.id) else { continue };
                let votes = statuses.iter().flatten().filter(|status| status.leader == *id).count();
                if votes > self.members.len() / 2 {
                    return Ok(place);
                }
            }
            if limit.remaining().is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the members agree on no leader"));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends one request to the JSON gateway of the first member that answers; see [`EtcdMember::call`].
    ///
    /// # Errors
    ///
    /// As for [`EtcdMember::call`], of the last member.
    pub fn call(&self, path: &str, request: &Value) -> io::Result<Value> {
        let mut answer = Err(io::Error::other("a cluster has a member"));
        for member in &self.members {
            answer = member.call(path, request);
            if answer.is_ok() {
                break;
            }
        }
        answer
    }
}

impl fmt::Debug for EtcdCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdCluster").field("members", &self.members).finish_non_exhaustive()
    }
}

/// Options of an [`EtcdCluster`].
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing until `start` is called"]
pub struct EtcdClusterBuilder {
    members: usize,
    /// Heartbeat and election, in milliseconds.
    timing: Option<(u32, u32)>,
    flags: Vec<String>,
    environment: Vec<(OsString, OsString)>,
    tls: Option<Tls>,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
struct Tls {
    certificate: String,
    key: String,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl EtcdClusterBuilder {
    /// How many members it has: 1 unless set. An odd number is wise.
    pub fn members(mut self, count: usize) -> Self {
        self.members = count;
        self
    }

    /// Leaves heartbeat and election as etcd has them: 100 ms and 1 s.
    pub fn default_timing(mut self) -> Self {
        self.timing = None;
        self
    }

    /// Adds a flag for every member, such as `("quota-backend-bytes", "16777216")`.
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        self.flags.push(format!("--{name}={value}"));
        self
    }

    /// Sets a variable of every member's environment, beside those of this process; each
    /// [`restart`](EtcdMember::restart) sets it again.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Lets each member listen to clients on a second port that speaks TLS, with this certificate and its key, both in PEM. It
    /// asks clients for none. With the feature `tls` this crate makes certificates.
    pub fn tls(mut self, certificate: &str, key: &str) -> Self {
        self.tls = Some(Tls { certificate: certificate.to_owned(), key: key.to_owned() });
        self
    }

    /// Starts the members at once. It returns when each is healthy.
    ///
    /// # Errors
    ///
    /// As for [`EtcdCluster::start`]; `InvalidInput` for no members.
    pub fn start(self) -> io::Result<EtcdCluster> {
        const PORTS_TRIED: usize = 20;

        if self.members == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a cluster needs a member"));
        }
        let program = find_program(env::var_os(VARIABLE), env::var_os("PATH"))?;
        let mut tries = 0;
        loop {
            tries += 1;
            let folder = TempFolder::new("hasp-etcd-")?;
            let members = self.plan(&program, folder.path())?;
            match start_all(&members) {
                Ok(()) => return Ok(EtcdCluster { members, _folder: folder }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < PORTS_TRIED => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn plan(&self, program: &Path, folder: &Path) -> io::Result<Vec<EtcdMember>> {
        let tls_port = || self.tls.as_ref().map(|_| Port::free()).transpose();
        let ports = (0..self.members).map(|_| Ok((Port::free()?, Port::free()?, tls_port()?)));
        let ports = ports.collect::<io::Result<Vec<_>>>()?;
        let peers: Vec<_> =
            ports.iter().enumerate().map(|(place, (_, peer, _))| format!("m{place}={}", url_of(peer))).collect();
        let tls_files = [folder.join("tls.crt"), folder.join("tls.key")];
        if let Some(Tls { certificate, key }) = &self.tls {
            fs::write(&tls_files[0], certificate)?;
            fs::write(&tls_files[1], key)?;
        }
        let member = |(place, (client, peer, tls)): (usize, (Port, Port, Option<Port>))| {
            let (client_url, peer_url) = (url_of(&client), url_of(&peer));
            let tls_url = tls.as_ref().map(|port| format!(",{}", tls_url_of(port))).unwrap_or_default();
            let mut arguments = [
                ("--name", format!("m{place}")),
                ("--data-dir", folder.join(format!("m{place}")).display().to_string()),
                ("--listen-client-urls", format!("{client_url}{tls_url}")),
                ("--advertise-client-urls", client_url),
                ("--listen-peer-urls", peer_url.clone()),
                ("--initial-advertise-peer-urls", peer_url),
                ("--initial-cluster", peers.join(",")),
                ("--initial-cluster-token", folder.display().to_string()),
                ("--initial-cluster-state", "new".to_owned()),
                ("--logger", "zap".to_owned()),
                ("--log-level", "warn".to_owned()),
            ]
            .map(|(name, value)| format!("{name}={value}"))
            .to_vec();
            if let Some((heartbeat, election)) = self.timing {
                arguments.push(format!("--heartbeat-interval={heartbeat}"));
                arguments.push(format!("--election-timeout={election}"));
            }
            if tls.is_some() {
                arguments.push(format!("--cert-file={}", tls_files[0].display()));
                arguments.push(format!("--key-file={}", tls_files[1].display()));
            }
            arguments.extend_from_slice(&self.flags);
            EtcdMember {
                process: Mutex::new(None),
                program: program.to_owned(),
                arguments,
                environment: self.environment.clone(),
                log: folder.join(format!("m{place}.log")),
                client,
                _peer: peer,
                tls,
            }
        };
        Ok(ports.into_iter().enumerate().map(member).collect())
    }
}

/// One member of an [`EtcdCluster`].
pub struct EtcdMember {
    process: Mutex<Option<Process>>,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(OsString, OsString)>,
    log: PathBuf,
    client: Port,
    _peer: Port,
    tls: Option<Port>,
}

struct Status {
    id: String,
    leader: String,
}

impl EtcdMember {
    /// Where it listens to clients: 127.0.0.1 and its port, the same for as long as the cluster lives.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.client.number()).into()
    }

    /// Its client URL, such as `http://127.0.0.1:12345`.
    #[must_use]
    pub fn url(&self) -> String {
        url_of(&self.client)
    }

    /// The URL of its TLS port, such as `https://127.0.0.1:12345`; `None` unless the cluster was started with a
    /// [certificate](EtcdClusterBuilder::tls).
    #[must_use]
    pub fn tls_url(&self) -> Option<String> {
        self.tls.as_ref().map(tls_url_of)
    }

    /// Kills it with SIGKILL, and returns when it is gone. Its data stays for [`restart`](EtcdMember::restart).
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    pub fn kill(&self) -> io::Result<()> {
        act::tell(self.addr().port(), "is killed");
        self.process().as_ref().map_or(Ok(()), Process::kill)
    }

    /// Stops it with SIGSTOP: connections are accepted by the kernel and stay silent.
    ///
    /// # Errors
    ///
    /// If it is not running.
    pub fn stop(&self) -> io::Result<()> {
        act::tell(self.addr().port(), "is stopped");
        self.process().as_ref().map_or_else(|| Err(not_running()), Process::stop)
    }

    /// Lets it run on after [`stop`](EtcdMember::stop).
    ///
    /// # Errors
    ///
    /// If it is not running.
    pub fn cont(&self) -> io::Result<()> {
        act::tell(self.addr().port(), "goes on");
        self.process().as_ref().map_or_else(|| Err(not_running()), Process::cont)
    }

    /// Kills it if it runs, and starts it anew with its data and its ports. It returns when the member is healthy, so a
    /// majority must be running.
    ///
    /// # Errors
    ///
    /// If it does not start, with the end of its log.
    pub fn restart(&self) -> io::Result<()> {
        self.spawn()?;
        self.wait_until_healthy()
    }

    /// Starts it as [`restart`](EtcdMember::restart) does, but does not wait: for members that need each other.
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    pub fn spawn(&self) -> io::Result<()> {
        let mut process = self.process();
        if let Some(old) = process.take() {
            act::tell(self.addr().port(), "is started anew");
            old.kill()?;
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = Process::command(&self.program);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log));
        *process = Some(Process::spawn(command)?);
        Ok(())
    }

    /// Waits until it says that it is healthy, so that it has a leader and answers.
    ///
    /// # Errors
    ///
    /// If it ends, or does not get healthy within 60 s, with the end of its log.
    pub fn wait_until_healthy(&self) -> io::Result<()> {
        let limit = Moment::now().saturating_add(START_LIMIT);
        loop {
            let health = gateway::get(self.addr(), "/health");
            if health.as_ref().is_ok_and(|health| health["health"] == "true") {
                return Ok(());
            }
            let ended = match self.process().as_ref() {
                Some(process) => !process.is_running()?,
                None => true,
            };
            if ended || limit.remaining().is_zero() {
                let log = fs::read_to_string(&self.log)?;
                let in_use = ended && log.contains("address already in use");
                let kind = if in_use { io::ErrorKind::AddrInUse } else { io::ErrorKind::Other };
                let what = if ended { "ended".to_owned() } else { format!("is not healthy: {health:?}") };
                return Err(io::Error::new(kind, format!("{} {what}; its log:\n{log}", self.program.display())));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends one request to the member's JSON gateway and reads the answer, such as `("/v3/lease/leases", json!({}))`. Keys
    /// and values are in base64, numbers in the answer are text.
    ///
    /// # Errors
    ///
    /// If it refuses the request, with its words; if it does not answer within 10 s.
    pub fn call(&self, path: &str, request: &Value) -> io::Result<Value> {
        gateway::post(self.addr(), path, request)
    }

    /// One of the member's own figures, such as `etcd_debugging_mvcc_events_total`, as `/metrics` tells it.
    ///
    /// # Errors
    ///
    /// If there is none of this name; if it does not answer within 10 s.
    pub fn metric(&self, name: &str) -> io::Result<f64> {
        let metrics = gateway::text(self.addr(), "/metrics")?;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("etcd tells no figure `{name}`")))
    }

    fn status(&self) -> io::Result<Status> {
        if !self.process().as_ref().is_some_and(|process| process.is_running().unwrap_or(false)) {
            return Err(not_running());
        }
        let status = gateway::post_within(Duration::from_secs(1), self.addr(), "/v3/maintenance/status", &json!({}))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (id, leader) = (text(&status["header"]["member_id"]), text(&status["leader"]));
        if id.is_empty() || leader.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("no leader is named: {status}")));
        }
        Ok(Status { id, leader })
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for EtcdMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdMember").field("addr", &self.addr()).finish_non_exhaustive()
    }
}

fn start_all(members: &[EtcdMember]) -> io::Result<()> {
    members.iter().try_for_each(EtcdMember::spawn)?;
    members.iter().try_for_each(EtcdMember::wait_until_healthy)
}

fn url_of(port: &Port) -> String {
    format!("http://127.0.0.1:{}", port.number())
}

fn tls_url_of(port: &Port) -> String {
    format!("https://127.0.0.1:{}", port.number())
}

fn not_running() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "this member is not running")
}

/// The variable that names the etcd to run.
const VARIABLE: &str = "HASP_ETCD";

/// The etcd to run: the named one, or else the first on the path.
fn find_program(named: Option<OsString>, path: Option<OsString>) -> io::Result<PathBuf> {
    program::find("etcd", VARIABLE, "etcd-server", named, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_server_is_an_error_that_says_what_to_do() {
        let nowhere = find_program(None, Some("/nowhere:/nowhere/else".into())).unwrap_err();
        assert_eq!(nowhere.kind(), io::ErrorKind::NotFound);
        assert!(nowhere.to_string().contains("run `./x setup`"), "{nowhere}");
        let misnamed = find_program(Some("/nowhere/etcd".into()), env::var_os("PATH")).unwrap_err();
        assert!(misnamed.to_string().contains("`/nowhere/etcd`, which is no file"), "{misnamed}");
    }
}
