//! A real PostgreSQL server of its own: its data directory, its port, its user, gone with the test.

use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// Who may log in as a superuser, and how.
pub(crate) const ROOT: (&str, &str) = ("root", "root secret");

/// A server on a free loopback port.
pub(crate) struct Postgres {
    folder: TempDir,
    programs: PathBuf,
    child: Option<Child>,
    pub(crate) port: u16,
}

impl Postgres {
    /// Starts it. PostgreSQL refuses to run as root, so it runs as `nobody` then.
    pub(crate) fn start() -> Self {
        let programs = programs();
        let folder = tempfile::Builder::new().prefix("tidegate-pg").tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let mut password = tempfile::NamedTempFile::new_in(folder.path()).unwrap();
        write!(password, "{}", ROOT.1).unwrap();
        if let Some((uid, gid)) = other_user() {
            chown(&data, Some(uid), Some(gid)).unwrap();
            chown(password.path(), Some(uid), Some(gid)).unwrap();
        }
        let mut init = Command::new(programs.join("initdb"));
        init.args(["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "-U", ROOT.0]);
        let made =
            as_other_user(init.arg("-D").arg(&data).arg("--pwfile").arg(password.path())).output().unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut postgres = Self { folder, programs, child: None, port };
        postgres.run();
        postgres
    }

    /// Starts the server, also again after [`Self::kill`].
    pub(crate) fn run(&mut self) {
        let data = self.folder.path().join("data");
        let mut server = Command::new(self.programs.join("postgres"));
        server.arg("-D").arg(&data).args([
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
        ]);
        server.args(["-c", &format!("port={}", self.port), "-c", "fsync=off", "-c", "max_connections=300"]);
        server.stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(as_other_user(&mut server).spawn().unwrap());
        let ready = self.programs.join("pg_isready");
        let port = self.port.to_string();
        let mut tries = 0;
        while !Command::new(&ready).args(["-q", "-h", "127.0.0.1", "-p", &port]).status().unwrap().success() {
            tries += 1;
            assert!(tries < 30_000, "PostgreSQL does not start");
        }
    }

    /// Kills it and all its processes at once.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let pid = child.id().to_string();
            let children =
                std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            child.kill().unwrap();
            Command::new("kill")
                .arg("-9")
                .args(children.split_whitespace())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            child.wait().unwrap();
        }
    }

    /// One of its programs, such as `psql`.
    pub(crate) fn program(&self, name: &str) -> Command {
        let own = self.programs.join(name);
        Command::new(if own.exists() { own } else { PathBuf::from(name) })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Debian's place for the newest version that is installed.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    found.retain(|folder| folder.join("initdb").exists());
    found.sort();
    found.pop().expect("PostgreSQL is not installed; ./tests/run installs Debian's package postgresql")
}

/// An unprivileged user to run as, when this is root.
fn other_user() -> Option<(u32, u32)> {
    let own = std::fs::metadata("/proc/self").unwrap();
    let root = std::os::unix::fs::MetadataExt::uid(&own) == 0;
    root.then_some((65_534, 65_534))
}

fn as_other_user(command: &mut Command) -> &mut Command {
    match other_user() {
        Some((uid, gid)) => command.uid(uid).gid(gid).current_dir(Path::new("/")),
        None => command,
    }
}
