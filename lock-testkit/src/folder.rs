use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Waits until its input ends, then removes the folder. A server that is being killed may still write there meanwhile, so it
/// tries again for 5 s. The signals are those of a terminal.
const JANITOR: &str = r#"
trap '' HUP INT TERM
read -r _
tries=0
until rm -rf -- "$0" || [ "$tries" -ge 100 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
"#;

/// A temporary folder that goes with its owner: when this value is dropped, and also when this whole process is killed.
///
/// A janitor removes it, a small process that waits for the end of a pipe whose other end this value holds. It is in a process
/// group of its own, so neither Ctrl-C nor a signal to the owner's group takes it along. It needs `sh`, `rm` and `sleep`.
///
/// The private servers of this crate keep their files in one.
///
/// # Examples
///
/// ```
/// use lock_testkit::TempFolder;
///
/// let folder = TempFolder::new("hasp-example-")?;
/// let path = folder.path().to_owned();
/// std::fs::write(path.join("a"), "1")?;
/// drop(folder);
/// assert!(!path.exists());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TempFolder {
    path: PathBuf,
    janitor: Child,
}

impl TempFolder {
    /// Makes one in the system's folder for temporary files (`TMPDIR`), with a name that begins so. Only its owner may enter.
    ///
    /// # Errors
    ///
    /// If it cannot be made, or `sh` cannot be run.
    pub fn new(prefix: &str) -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir(), prefix)
    }

    /// Makes one in this folder.
    pub(crate) fn new_in(parent: &Path, prefix: &str) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        let janitor = Command::new("sh")
            .args(["-c", JANITOR])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self { path: folder.keep(), janitor })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        // It fails only for a process that is none of our children.
        drop(self.janitor.wait());
    }
}
