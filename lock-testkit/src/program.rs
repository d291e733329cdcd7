use std::env;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// The program to run: the one that `variable` names, or else the first of this name on the path. `package` is said to those
/// who have none.
pub(crate) fn find(
    program: &str,
    variable: &str,
    package: &str,
    named: Option<OsString>,
    path: Option<OsString>,
) -> io::Result<PathBuf> {
    let missing = |says: String| io::Error::new(io::ErrorKind::NotFound, says);
    if let Some(named) = named.map(PathBuf::from) {
        if named.is_file() {
            return Ok(named);
        }
        let named = named.display();
        return Err(missing(format!(
            "{variable} names `{named}`, which is no file; let it name the {program} to run, or unset it"
        )));
    }
    env::split_paths(&path.unwrap_or_default())
        .map(|folder| folder.join(program))
        .find(|program| program.is_file())
        .ok_or_else(|| {
            missing(format!(
                "there is no {program} on PATH; run `./x setup` (Debian has it in {package}), or let {variable} name one"
            ))
        })
}
