//! Servers of versions that Debian does not package, from npm: `./tests/run` installs them for the whole machine.

use std::path::PathBuf;
use std::process::Command;

use super::{ServerError, installed};

/// The folder of a package that is installed for the whole machine.
pub(super) fn package(name: &'static str, program: &str) -> Result<PathBuf, ServerError> {
    let root = installed(Command::new("npm").args(["root", "-g"]), program, name)?;
    let folder = PathBuf::from(String::from_utf8_lossy(&root.stdout).trim_end()).join(name);
    let absent = || ServerError::Absent { program: program.to_owned(), package: name };
    folder.is_dir().then_some(folder).ok_or_else(absent)
}
