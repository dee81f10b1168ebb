//! MariaDB.

use std::process::Command;

use super::{GATEWAY, ROOT, ServerError, Site, as_nobody, installed, io_error, output};

/// A running server.
#[derive(Debug)]
pub struct MariaDb {
    site: Site,
    options: Vec<String>,
}

impl MariaDb {
    /// Starts one with these options, such as `--innodb-buffer-pool-size=512M`, besides those it needs.
    ///
    /// # Errors
    /// It is not installed, or does not come up.
    pub fn start(options: &[&str]) -> Result<Self, ServerError> {
        let site = Site::new("tidegate-my")?;
        let mut init = Command::new("mariadb-install-db");
        init.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        init.arg(format!("--datadir={}", site.data().display())).env("TMPDIR", site.tmp());
        installed(as_nobody(&mut init)?, "MariaDB", "mariadb-server")?;
        let mut server = Self { site, options: options.iter().map(ToString::to_string).collect() };
        server.run()?;
        accounts(&server.site, &["connection admin, process on *.*"])?;
        Ok(server)
    }

    /// Starts the server, also again after [`Self::kill`].
    ///
    /// # Errors
    /// It does not come up.
    pub fn run(&mut self) -> Result<(), ServerError> {
        let mut server = Command::new("mariadbd");
        server.args(["--no-defaults", "--skip-log-bin"]);
        run(&mut self.site, &mut server, &self.options)
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.site.kill();
    }

    /// Its process; zero when it does not run.
    pub fn pid(&self) -> u32 {
        self.site.pid()
    }

    /// Where it listens on the loopback address.
    pub fn port(&self) -> u16 {
        self.site.port
    }

    /// The gateway's upstream, with its own account.
    pub fn upstream(&self) -> String {
        upstream(&self.site)
    }

    /// The same over the server's Unix socket.
    pub fn socket_upstream(&self) -> String {
        socket_upstream(&self.site)
    }

    /// Runs this as the superuser over the socket.
    ///
    /// # Errors
    /// It fails.
    pub fn root(&self, sql: &str) -> Result<(), ServerError> {
        root(&self.site, sql)
    }
}

/// Runs a server of either kind at a site, with what it needs there and these options behind it.
pub(super) fn run(site: &mut Site, server: &mut Command, options: &[String]) -> Result<(), ServerError> {
    let data = site.data();
    server.args(["--bind-address=127.0.0.1", "--local-infile=1", "--max-allowed-packet=128M"]);
    server.arg("--innodb-flush-log-at-trx-commit=0").env("TMPDIR", site.tmp());
    for (option, value) in [
        ("datadir", data.display().to_string()),
        ("socket", data.join("s").display().to_string()),
        ("pid-file", data.join("pid").display().to_string()),
        ("port", site.port.to_string()),
    ] {
        server.arg(format!("--{option}={value}"));
    }
    site.run(server.args(options), answers)
}

/// Makes the accounts of a new server of either kind: one that may do everything, and the gateway's with these grants.
pub(super) fn accounts(site: &Site, grants: &[&str]) -> Result<(), ServerError> {
    let (user, password) = ROOT;
    root(
        site,
        &format!(
            "create user '{user}'@'%' identified by '{password}'; grant all on *.* to '{user}'@'%' with grant option"
        ),
    )?;
    let (user, password) = GATEWAY;
    root(site, &format!("create user '{user}'@'%' identified by '{password}'"))?;
    grants.iter().try_for_each(|grant| root(site, &format!("grant {grant} to '{user}'@'%'")))
}

/// Whether the server at a site answers its superuser.
fn answers(site: &Site) -> Result<bool, ServerError> {
    let look = client(site, "do 1").output().map_err(io_error("run mariadb"))?;
    Ok(look.status.success())
}

/// See [`MariaDb::upstream`].
pub(super) fn upstream(site: &Site) -> String {
    format!("mysql://{}@127.0.0.1:{}", account(), site.port)
}

/// See [`MariaDb::socket_upstream`].
pub(super) fn socket_upstream(site: &Site) -> String {
    format!("mysql://{}@localhost?socket={}", account(), site.data().join("s").display())
}

/// The gateway's, as a URL has it.
fn account() -> String {
    let (user, password) = GATEWAY;
    format!("{user}:{}", password.replace(' ', "%20"))
}

/// See [`MariaDb::root`].
pub(super) fn root(site: &Site, sql: &str) -> Result<(), ServerError> {
    output(&mut client(site, sql)).map(drop)
}

fn client(site: &Site, sql: &str) -> Command {
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "--protocol=socket", "-u", "root"]);
    client.arg(format!("--socket={}", site.data().join("s").display())).args(["-e", sql]);
    client
}
