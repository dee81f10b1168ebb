//! Servers of versions that Debian does not package, from npm: `./tests/run` installs them into a folder.

use std::path::{Path, PathBuf};

use super::ServerError;

/// Where packages are: for root in a folder that the user of the servers may pass to, else in the checkout.
const FOLDERS: [&str; 2] = ["/opt/tidegate-npm", concat!(env!("CARGO_MANIFEST_DIR"), "/../target/npm")];

/// The folder of a package that is installed.
pub(super) fn package(name: &'static str, program: &str) -> Result<PathBuf, ServerError> {
    let place = |folder: &str| Path::new(folder).join("node_modules").join(name);
    let absent = || ServerError::Absent { program: program.to_owned(), package: name };
    FOLDERS.map(place).into_iter().find(|folder| folder.is_dir()).ok_or_else(absent)
}
