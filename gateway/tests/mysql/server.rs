//! A real MariaDB server of its own: its data directory, its port, its user, gone with the test.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// Who may do everything, and how.
pub(crate) const ROOT: (&str, &str) = ("gate", "gate secret");

/// A server on a free loopback port.
pub(crate) struct MariaDb {
    folder: TempDir,
    child: Option<Child>,
    pub(crate) port: u16,
}

impl MariaDb {
    /// Starts it, as `nobody` when this is root.
    pub(crate) fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("tidegate-my").tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        if let Some((uid, gid)) = other_user() {
            chown(&data, Some(uid), Some(gid)).unwrap();
        }
        let mut init = Command::new("mariadb-install-db");
        init.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        let data_option = format!("--datadir={}", data.display());
        let made = as_other_user(init.arg(data_option)).output();
        let made =
            made.expect("MariaDB is not installed; ./tests/run installs Debian's package mariadb-server");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { folder, child: None, port };
        server.run();
        let (user, password) = ROOT;
        server.root(&format!(
            "create user '{user}'@'%' identified by '{password}'; grant all on *.* to '{user}'@'%' with grant option"
        ));
        server
    }

    /// Starts the server, also again after [`Self::kill`].
    pub(crate) fn run(&mut self) {
        let data = self.folder.path().join("data");
        let mut server = Command::new("mariadbd");
        server.args([
            "--no-defaults",
            "--bind-address=127.0.0.1",
            "--local-infile=1",
            "--max-connections=300",
        ]);
        server.args(["--innodb-flush-log-at-trx-commit=0", "--max-allowed-packet=128M", "--skip-log-bin"]);
        for (option, value) in [
            ("datadir", data.display().to_string()),
            ("socket", data.join("s").display().to_string()),
            ("pid-file", data.join("pid").display().to_string()),
            ("port", self.port.to_string()),
        ] {
            server.arg(format!("--{option}={value}"));
        }
        server.stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(as_other_user(&mut server).spawn().unwrap());
        for _ in 0..600 {
            if self.client("root", "").arg("-e").arg("do 1").output().unwrap().status.success() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        panic!("MariaDB does not start");
    }

    /// Kills it at once.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Runs this as the superuser over the socket.
    pub(crate) fn root(&self, sql: &str) {
        let done = self.client("root", "").args(["-e", sql]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    fn client(&self, user: &str, password: &str) -> Command {
        let mut client = Command::new("mariadb");
        let socket = self.folder.path().join("data/s");
        client.args(["--no-defaults", "--protocol=socket", "-u", user]).arg(format!("--password={password}"));
        client.arg(format!("--socket={}", socket.display()));
        client
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        self.kill();
    }
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
