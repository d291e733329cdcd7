use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::{env, fs, io};

use super::admin::{Door, USER};
use super::{Program, RedisServer, VARIABLE, config_path, find_program, run};
use crate::TempFolder;
use crate::port::Port;

/// Where Linux keeps files in memory (shm_overview(7)).
const MEMORY: &str = "/dev/shm";

/// Options of a [`RedisServer`].
#[derive(Clone, Default)]
#[must_use = "a builder starts nothing until `start` is called"]
pub struct RedisServerBuilder {
    role: Role,
    environment: Vec<(OsString, OsString)>,
    config: String,
    password: Option<String>,
    tls: Option<Tls>,
    cluster_port: Option<Arc<Port>>,
    in_memory: bool,
}

/// What the program is started as.
#[derive(Clone, Copy, Default)]
pub(super) enum Role {
    #[default]
    Server,
    Sentinel,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
struct Tls {
    certificate: String,
    key: String,
}

impl RedisServerBuilder {
    /// Adds a line to the configuration file. `value` is as redis.conf wants it, several words and quotes included.
    ///
    /// An ACL user is such a line: `.config("user", "app on >secret ~hasp:* &hasp:* +@all")`. `aclfile` does not work,
    /// because the testkit's own user is a line of the configuration file, and Redis accepts either.
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_testkit::RedisServer;
    ///
    /// let server = RedisServer::builder().config("appendonly", "yes").config("appendfsync", "always").start()?;
    /// server.command::<()>(&["SET", "a", "1"])?;
    /// server.restart()?;
    /// assert_eq!(server.command::<u64>(&["DBSIZE"])?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn config(mut self, name: &str, value: &str) -> Self {
        writeln!(self.config, "{name} {value}").expect("a string takes every text");
        self
    }

    /// Gives the default user a password. It must not hold spaces, quotes or backslashes.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.config("requirepass", password)
    }

    /// Lets the server listen on a second port that speaks TLS, with this certificate and its key, both in PEM. It asks
    /// clients for none. With the feature `tls` this crate makes certificates.
    pub fn tls(mut self, certificate: &str, key: &str) -> Self {
        self.tls = Some(Tls { certificate: certificate.to_owned(), key: key.to_owned() });
        self
    }

    /// Sets a variable of the server's environment, beside those of this process; each [`restart`](RedisServer::restart)
    /// sets it again.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Lets it talk to the other nodes of a cluster on this port.
    pub(super) fn cluster_port(mut self, port: Port) -> Self {
        self.cluster_port = Some(Arc::new(port));
        self
    }

    /// Makes it a sentinel, which watches servers instead of being one.
    pub(super) fn sentinel(mut self) -> Self {
        self.role = Role::Sentinel;
        self
    }

    /// Keeps its files in memory where the system can. Sentinels and the nodes of a cluster write what they decide to the disk
    /// and wait for it, and on a busy disk that takes longer than they may be silent.
    pub(super) fn in_memory(mut self) -> Self {
        self.in_memory = true;
        self
    }

    /// Starts the server. It returns when the server answers PING.
    ///
    /// # Errors
    ///
    /// As for [`RedisServer::start`].
    pub fn start(self) -> io::Result<RedisServer> {
        const PORTS_TRIED: usize = 20;

        let path = find_program(env::var_os(VARIABLE), env::var_os("PATH"))?;
        let program = Program { path, role: self.role, environment: self.environment.clone() };
        let folder = self.folder()?;
        let door = Arc::new(Door::new(folder.path().join("redis.sock")));
        if let Some(Tls { certificate, key }) = &self.tls {
            fs::write(folder.path().join("tls.crt"), certificate)?;
            fs::write(folder.path().join("tls.key"), key)?;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let port = Port::free()?;
            let tls_port = self.tls.as_ref().map(|_| Port::free()).transpose()?;
            fs::write(config_path(folder.path()), self.config_file(&port, tls_port.as_ref(), &door))?;
            match run(&program, folder.path(), &door) {
                Ok(process) => {
                    let Self { password, cluster_port, .. } = self;
                    let process = Mutex::new(process);
                    return Ok(RedisServer {
                        process,
                        program,
                        folder,
                        port,
                        tls_port,
                        _cluster_port: cluster_port,
                        password,
                        door,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < PORTS_TRIED => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn folder(&self) -> io::Result<TempFolder> {
        const PREFIX: &str = "hasp-redis-";

        if self.in_memory && Path::new(MEMORY).is_dir() {
            return TempFolder::new_in(Path::new(MEMORY), PREFIX);
        }
        TempFolder::new(PREFIX)
    }

    fn config_file(&self, port: &Port, tls_port: Option<&Port>, door: &Door) -> String {
        let tls = tls_port.map(|port| {
            format!(
                "tls-port {}\ntls-cert-file tls.crt\ntls-key-file tls.key\ntls-ca-cert-file tls.crt\n\
                 tls-auth-clients no\n",
                port.number()
            )
        });
        let cluster = self.cluster_port.as_ref().map(|port| format!("cluster-port {}\n", port.number()));
        // A sentinel keeps no data, and does not know these options.
        let persistence = match self.role {
            Role::Server => "save \"\"\nappendonly no\n",
            Role::Sentinel => "",
        };
        format!(
            "bind 127.0.0.1\nport {port}\n{cluster}{tls}unixsocket {socket}\nunixsocketperm 700\n\
             user {USER} on >{secret} ~* &* +@all\n\
             daemonize no\n{persistence}{own}",
            port = port.number(),
            cluster = cluster.unwrap_or_default(),
            tls = tls.unwrap_or_default(),
            socket = door.socket().display(),
            secret = door.secret(),
            own = self.config,
        )
    }
}

impl fmt::Debug for RedisServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The lines may hold passwords.
        f.debug_struct("RedisServerBuilder").field("config_lines", &self.config.lines().count()).finish_non_exhaustive()
    }
}
