//! Two databases, a controller, and one gateway process before both databases.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tidegate_test_servers::{MariaDb, Postgres, ROOT, said};

use crate::support::{Controller, tidegate};

/// Who logs in, and how.
pub(super) type Login<'a> = (&'a str, &'a str);

/// The processes of a test; dropping it ends them.
pub(super) struct Stage {
    pub(super) postgres: Postgres,
    pub(super) mariadb: MariaDb,
    pub(super) controller: Controller,
    pub(super) gateway: Gateway,
}

/// The process, as long as this lives.
pub(super) struct Gateway {
    process: Child,
    /// Where clients of either protocol connect, and where its metrics are.
    pub(super) postgres: u16,
    pub(super) mysql: u16,
    metrics: String,
    /// Its settings, its journal and its log.
    pub(super) folder: TempDir,
    /// Its output besides its addresses; `None` once that was taken.
    printed: Option<thread::JoinHandle<String>>,
}

impl Stage {
    /// Databases with a user ann and this password; both processes log at this level.
    pub(super) fn new(password: &str, level: &'static str) -> Self {
        let postgres = thread::spawn(|| Postgres::start(&[]).unwrap());
        let mariadb = MariaDb::start(&[]).unwrap();
        mariadb.root("create database shop").unwrap();
        mariadb
            .root(&format!("create user ann identified by '{password}'; grant all on shop.* to ann"))
            .unwrap();
        let postgres = postgres.join().unwrap();
        for sql in [&format!("create user ann password '{password}'"), "create database shop owner ann"] {
            psql(&postgres, postgres.port(), "postgres", ROOT, &format!("{sql};"));
        }
        let controller = Controller::logging(level);
        let gateway = Gateway::start(&controller, [&postgres.upstream(), &mariadb.upstream()], level, "");
        Self { postgres, mariadb, controller, gateway }
    }

    /// Another gateway, with more settings, takes the place of the one that was.
    pub(super) fn swap(&mut self, settings: &str) -> Gateway {
        let upstreams = [&*self.postgres.upstream(), &self.mariadb.upstream()];
        let other = Gateway::start(&self.controller, upstreams, "info", settings);
        std::mem::replace(&mut self.gateway, other)
    }

    /// The output of `psql` for a script that goes through the gateway to the database `shop`, errors behind.
    pub(super) fn psql(&self, login: Login<'_>, script: &str) -> String {
        psql(&self.postgres, self.gateway.postgres, "shop", login, script)
    }

    /// The same of `mariadb`.
    pub(super) fn mysql(&self, login: Login<'_>, script: &str) -> String {
        said(&mut self.mysql_client(login), script.as_bytes())
    }

    /// A client of the MySQL protocol, for a script.
    pub(super) fn mysql_client(&self, (user, password): Login<'_>) -> Command {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-h127.0.0.1", "--force", "--local-infile=1", "-N", "shop"]);
        client.args([format!("-u{user}"), format!("-P{}", self.gateway.mysql)]).env("MYSQL_PWD", password);
        client
    }

    /// A client of PostgreSQL, for a script.
    pub(super) fn psql_client(&self, login: Login<'_>) -> Command {
        psql_client(&self.postgres, self.gateway.postgres, "shop", login)
    }
}

impl Gateway {
    fn start(controller: &Controller, upstreams: [&str; 2], level: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let settings = format!(
            "upstream = {upstreams:?}\nlisten = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\nadmin = [\"{}\"]\n\
             journal = {:?}\nmetrics = \"127.0.0.1:0\"\nmax_wait = \"2s\"\n{more}",
            ROOT.0,
            place("journal"),
        );
        std::fs::write(place("gateway.toml"), settings).unwrap();
        let mut gateway = tidegate();
        gateway.args(["--endpoint", &controller.endpoint, "gateway", "--config"]).arg(place("gateway.toml"));
        gateway.env("TIDEGATE_LOG", level).stderr(File::create(place("log")).unwrap());
        let mut process = gateway.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut line = || {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        let port = |line: String| {
            let address = line.split_once(" to ").unwrap_or_else(|| panic!("{line}")).0;
            address.rsplit_once(':').unwrap().1.parse().unwrap()
        };
        let (postgres, mysql) = (port(line()), port(line()));
        let metrics = line().strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
        let printed = thread::spawn(move || {
            let mut rest = String::new();
            stdout.read_to_string(&mut rest).unwrap();
            rest
        });
        Self { process, postgres, mysql, metrics, folder, printed: Some(printed) }
    }

    /// Its page for Prometheus.
    pub(super) fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }

    /// The most memory that it has used.
    pub(super) fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
    }

    /// Where its log goes.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Asks it to end (SIGTERM).
    pub(super) fn terminate(&self) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Waits for its end. Returns its exit status, its log, and what it printed.
    pub(super) fn ended(mut self) -> (Option<i32>, String, String) {
        let status = self.process.wait().unwrap().code();
        let log = std::fs::read_to_string(self.log()).unwrap();
        let printed = self.printed.take().map(|printed| printed.join().unwrap());
        (status, log, printed.unwrap_or_default())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // One that has ended is as gone.
        drop(self.process.kill());
        drop(self.process.wait());
        said::keep_file(&self.folder.path().join("log"));
    }
}

/// The output of a client for a script, with errors behind the results.
pub(super) fn said(client: &mut Command, script: &[u8]) -> String {
    let output = begun(client, script).wait_with_output().unwrap();
    text(&output)
}

/// A client that has its script.
pub(super) fn begun(client: &mut Command, script: &[u8]) -> Child {
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = client.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // A client that was refused reads nothing.
    drop(input.write_all(script));
    child
}

/// Results, and errors behind.
pub(super) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// What `psql` prints of a script.
fn psql(postgres: &Postgres, port: u16, database: &str, login: Login<'_>, script: &str) -> String {
    said(&mut psql_client(postgres, port, database, login), script.as_bytes())
}

fn psql_client(postgres: &Postgres, port: u16, database: &str, (user, password): Login<'_>) -> Command {
    let mut psql = postgres.program("psql");
    psql.args(["-X", "-A", "-t", "-h", "127.0.0.1", "-p", &port.to_string(), "-U", user, database]);
    psql.env("PGPASSWORD", password);
    psql
}
