//! Real database servers, balancers and limiters of one's own, for tests and benchmarks: a data directory, a free
//! loopback port, gone at the end. They run as `nobody` when this is root, as databases refuse to be root or should
//! not be.

mod browser;
mod certificates;
mod collector;
mod etcd;
mod haproxy;
mod mariadb;
mod mysql;
mod nginx;
mod npm;
mod postgres;
mod redis;
pub mod said;

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

pub use browser::{Browser, script};
pub use certificates::Certificates;
pub use collector::{Collector, Exported, Manner};
pub use etcd::Etcd;
pub use haproxy::HaProxy;
pub use mariadb::MariaDb;
pub use mysql::MySql;
pub use nginx::Nginx;
pub use postgres::Postgres;
pub use redis::Redis;

/// The superuser of a server, and its password.
pub const ROOT: (&str, &str) = ("gate", "gate secret");
/// The gateway's own account at MySQL and MariaDB, which may do what it needs there and nothing else.
pub const GATEWAY: (&str, &str) = ("gateway", "gateway secret");

/// Between two looks whether a server is up.
const LOOK: Duration = Duration::from_millis(20);
/// Looks before it is given up.
const LOOKS: u32 = 3_000;
/// Ports of servers: below those that the kernel gives to outgoing connections (`net.ipv4.ip_local_port_range`). One of
/// these may take a port while its server is being set up; and a client that connects again and again to a server that
/// is down would at some time be given the very port and be connected to itself.
const PORTS: Range<u16> = 20_000..32_000;
/// Characters of a server's last words that an error quotes.
const LAST_WORDS: usize = 2_000;

/// Why a server cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The program is not installed.
    #[error("{program} is not installed; ./tests/run installs the package {package}")]
    Absent {
        /// What was looked for.
        program: String,
        /// Where it comes from.
        package: &'static str,
    },
    /// A file or a process.
    #[error("cannot {what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What the operating system said.
        error: io::Error,
    },
    /// A program of it failed.
    #[error("{what} failed: {said}")]
    Failed {
        /// The program.
        what: String,
        /// The end of what it said.
        said: String,
    },
}

/// The folder and the process of a server.
#[derive(Debug)]
struct Site {
    folder: TempDir,
    child: Option<Child>,
    port: u16,
}

impl Site {
    /// A folder with an empty `data` and `tmp` in it for the server's user, and a free port.
    fn new(name: &str) -> Result<Self, ServerError> {
        let folder = tempfile::Builder::new().prefix(name).tempdir().map_err(io_error("make a folder"))?;
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).map_err(io_error("open a folder"))?;
        for name in ["data", "tmp"] {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).map_err(io_error("make a folder"))?;
            give(&path)?;
        }
        Ok(Self { folder, child: None, port: free_port()? })
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// For temporary files: servers that start in the same folder may remove each other's.
    fn tmp(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    /// Runs the server and waits until `is_up`.
    fn run(
        &mut self,
        server: &mut Command,
        is_up: impl Fn(&Self) -> Result<bool, ServerError>,
    ) -> Result<(), ServerError> {
        let what = server.get_program().to_string_lossy().into_owned();
        let log = self.folder.path().join("log");
        let words = File::create(&log).map_err(io_error("make a file"))?;
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(words);
        self.child = Some(as_nobody(server)?.spawn().map_err(io_error(format!("start {what}")))?);
        let mut ended = None;
        for _ in 0..LOOKS {
            if is_up(self)? {
                return Ok(());
            }
            let looked = self.child.as_mut().map(Child::try_wait).transpose();
            ended = looked.map_err(io_error(format!("look at {what}")))?.flatten();
            if ended.is_some() {
                break;
            }
            thread::park_timeout(LOOK);
        }
        let why =
            ended.map_or_else(|| "it does not come up".to_owned(), |status| format!("it ended ({status})"));
        let said = std::fs::read(&log).map_err(io_error("read a file"))?;
        let said = String::from_utf8_lossy(&said);
        let last = said.char_indices().rev().nth(LAST_WORDS).map_or(0, |(at, _)| at);
        let said = format!("{why}: {}", said.get(last..).unwrap_or_default());
        Err(ServerError::Failed { what, said })
    }

    /// The server's process; zero when it does not run.
    fn pid(&self) -> u32 {
        self.child.as_ref().map(Child::id).unwrap_or_default()
    }

    /// Kills the server and the processes it has begun, at once.
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let pid = child.id().to_string();
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            // A server that has ended by itself is as dead.
            drop(child.kill());
            let mut kill = Command::new("kill");
            kill.arg("-9").args(children.unwrap_or_default().split_whitespace()).stderr(Stdio::null());
            drop(kill.status());
            drop(child.wait());
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A loopback port that nobody listens on, and that no process has chosen here before that still lives.
///
/// A server that binds its port late would else share it with one that another process starts: the second to come ends,
/// and its test asks the first.
///
/// # Errors
/// There is none.
pub fn free_port() -> Result<u16, ServerError> {
    static CHOSEN: AtomicU32 = AtomicU32::new(0);
    let ports = u32::from(PORTS.end - PORTS.start);
    for _ in 0..ports {
        // Processes at the same time begin at different ports.
        let place = std::process::id().wrapping_mul(97).wrapping_add(CHOSEN.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start.saturating_add(u16::try_from(place % ports).unwrap_or_default());
        if reserved(port)? && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    let said = format!("all from {} to {} are taken", PORTS.start, PORTS.end);
    Err(ServerError::Failed { what: "the choice of a port".to_owned(), said })
}

/// Reserves a port among all processes that choose one here, until this one ends: by a name that the kernel gives to
/// one socket at a time and takes back with it.
fn reserved(port: u16) -> Result<bool, ServerError> {
    let name = SocketAddr::from_abstract_name(format!("tidegate-port-{port}"));
    match UnixDatagram::bind_addr(&name.map_err(io_error("name a socket"))?) {
        Ok(socket) => {
            std::mem::forget(socket);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
        Err(error) => Err(io_error("reserve a port")(error)),
    }
}

/// Makes a file or folder the server's.
fn give(path: &Path) -> Result<(), ServerError> {
    match nobody()? {
        Some((uid, gid)) => chown(path, Some(uid), Some(gid)).map_err(io_error("give a file away")),
        None => Ok(()),
    }
}

/// The unprivileged user to run as, when this is root.
fn nobody() -> Result<Option<(u32, u32)>, ServerError> {
    let own = std::fs::metadata("/proc/self").map_err(io_error("read /proc/self"))?;
    Ok((own.uid() == 0).then_some((65_534, 65_534)))
}

fn as_nobody(command: &mut Command) -> Result<&mut Command, ServerError> {
    Ok(match nobody()? {
        Some((uid, gid)) => command.uid(uid).gid(gid).current_dir("/"),
        None => command,
    })
}

/// The output of a program that has to succeed.
fn output(command: &mut Command) -> Result<Output, ServerError> {
    let what = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(io_error(format!("run {what}")))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    Err(ServerError::Failed { what, said: String::from_utf8_lossy(&said).into_owned() })
}

/// The same of a program that may not be installed.
fn installed(command: &mut Command, program: &str, package: &'static str) -> Result<Output, ServerError> {
    output(command).map_err(|error| match error {
        ServerError::Io { error, .. } if error.kind() == io::ErrorKind::NotFound => {
            ServerError::Absent { program: program.to_owned(), package }
        }
        other => other,
    })
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServerError {
    let what = what.into();
    move |error| ServerError::Io { what, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_by_itself_is_an_error_with_its_last_words() {
        let error = MariaDb::start(&["--no-such-option"]).unwrap_err().to_string();
        assert!(error.contains("it ended") && error.contains("no-such-option"), "{error}");
    }

    #[test]
    fn ports_are_chosen_once_and_not_where_outgoing_connections_get_theirs() {
        let ports = [(); 100].map(|()| free_port().unwrap());
        assert!(ports.iter().all(|port| PORTS.contains(port)));
        assert_eq!(std::collections::BTreeSet::from(ports).len(), ports.len());
        // For other processes, too.
        assert!(ports.iter().all(|port| !reserved(*port).unwrap()));
    }
}
