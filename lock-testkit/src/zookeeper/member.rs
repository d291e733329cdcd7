use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{env, iter};

use crate::Process;
use crate::port::Port;

/// The longest that a four-letter command waits for its answer.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The same while a server starts, because one that takes a command too early never answers it.
pub(super) const EARLY_ANSWER_LIMIT: Duration = Duration::from_millis(250);

/// The variable that names the class path.
const VARIABLE: &str = "HASP_ZOOKEEPER_CLASSPATH";

/// Debian's jars. The first names what it needs in its manifest; the second lets the server log.
const JARS: [&str; 2] = ["zookeeper.jar", "slf4j-simple.jar"];

/// What is run: Java and a class path.
#[derive(Clone, Debug)]
pub(super) struct Program {
    java: PathBuf,
    class_path: OsString,
    properties: Vec<String>,
    environment: Vec<(OsString, OsString)>,
}

impl Program {
    pub(super) fn find() -> io::Result<Self> {
        Self::find_in(env::var_os(VARIABLE), env::var_os("PATH"), Path::new("/usr/share/java"))
    }

    fn find_in(named: Option<OsString>, path: Option<OsString>, debian: &Path) -> io::Result<Self> {
        let missing = |says: String| io::Error::new(io::ErrorKind::NotFound, says);
        let class_path = match named {
            Some(named) => named,
            None if debian.join(JARS[0]).is_file() => {
                env::join_paths(JARS.map(|jar| debian.join(jar))).expect("our paths have no colon")
            }
            None => {
                let (jar, debian) = (JARS[0], debian.display());
                return Err(missing(format!(
                    "there is no {jar} in {debian}; install Debian's package `zookeeper` (the service need not run), or let \
                     {VARIABLE} name the class path of a ZooKeeper server"
                )));
            }
        };
        let java = env::split_paths(&path.unwrap_or_default())
            .map(|folder| folder.join("java"))
            .find(|program| program.is_file())
            .ok_or_else(|| missing("there is no java on PATH; install Debian's `default-jre-headless`".into()))?;
        Ok(Self { java, class_path, properties: Vec::new(), environment: Vec::new() })
    }

    pub(super) fn with_properties(mut self, properties: &[String]) -> Self {
        self.properties = properties.to_vec();
        self
    }

    pub(super) fn with_environment(mut self, environment: &[(OsString, OsString)]) -> Self {
        self.environment = environment.to_vec();
        self
    }
}

/// The ports of one member.
#[derive(Debug)]
pub(super) struct Ports {
    client: Port,
    peers: Port,
    election: Port,
}

impl Ports {
    pub(super) fn free() -> io::Result<Self> {
        Ok(Self { client: Port::free()?, peers: Port::free()?, election: Port::free()? })
    }

    pub(super) fn client_addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.client.number()).into()
    }

    pub(super) fn peers_addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.peers.number()).into()
    }

    pub(super) const fn election(&self) -> u16 {
        self.election.number()
    }

    pub(super) fn ask(&self, command: &str, limit: Duration) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.client_addr(), limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(command.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// What the member says it is: `standalone`, `leader` or `follower`; none while it does not serve.
    pub(super) fn mode(&self, limit: Duration) -> io::Result<Option<String>> {
        let answer = self.ask("srvr", limit)?;
        Ok(answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(ToOwned::to_owned))
    }
}

/// One server, with a folder of its own.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) process: Process,
    program: Program,
    folder: PathBuf,
    id: usize,
}

impl Member {
    pub(super) fn start(program: Program, parent: &Path, id: usize, config: &str) -> io::Result<Self> {
        let folder = parent.join(id.to_string());
        fs::create_dir(&folder)?;
        let data = data_path(&folder);
        fs::write(config_path(&folder), format!("dataDir={}\n{config}", data.display()))?;
        make_data_folder(&folder, id)?;
        let process = run(&program, &folder)?;
        Ok(Self { process, program, folder, id })
    }

    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process = run(&self.program, &self.folder)?;
        Ok(())
    }

    pub(super) fn wipe(&self) -> io::Result<()> {
        self.process.kill()?;
        fs::remove_dir_all(data_path(&self.folder))?;
        make_data_folder(&self.folder, self.id)
    }

    pub(super) fn log(&self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(log_path(&self.folder))?).into_owned())
    }
}

fn make_data_folder(folder: &Path, id: usize) -> io::Result<()> {
    fs::create_dir(data_path(folder))?;
    fs::write(data_path(folder).join("myid"), id.to_string())
}

fn run(program: &Program, folder: &Path) -> io::Result<Process> {
    let log = OpenOptions::new().create(true).append(true).open(log_path(folder))?;
    // A small and quickly started virtual machine, which leaves no file of its figures behind when it is killed, and a server
    // that does not wait for the disk.
    let options = [
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-Dzookeeper.forceSync=no",
        "-cp",
    ];
    let main = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
    let mut command = Process::command(&program.java);
    command
        .args(&program.properties)
        .args(options.iter().map(OsStr::new).chain(iter::once(&*program.class_path)))
        .arg(main)
        .arg(config_path(folder))
        .envs(program.environment.iter().cloned())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::from(log.try_clone()?))
        .stderr(Stdio::from(log));
    Process::spawn(command)
}

fn config_path(folder: &Path) -> PathBuf {
    folder.join("zoo.cfg")
}

fn data_path(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn log_path(folder: &Path) -> PathBuf {
    folder.join("zookeeper.log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_jars_and_a_missing_java_are_errors_that_say_what_to_do() {
        let nowhere = Path::new("/nowhere");
        let no_jars = Program::find_in(None, env::var_os("PATH"), nowhere).unwrap_err();
        assert_eq!(no_jars.kind(), io::ErrorKind::NotFound);
        assert!(no_jars.to_string().contains("install Debian's package `zookeeper`"), "{no_jars}");
        let no_java = Program::find_in(Some("a.jar".into()), Some("/nowhere".into()), nowhere).unwrap_err();
        assert_eq!(no_java.kind(), io::ErrorKind::NotFound);
        assert!(no_java.to_string().contains("install Debian's `default-jre-headless`"), "{no_java}");
    }
}
