//! The controllers of the demo: one with its file, or three with their state in three members of etcd, of which the one
//! that leads is killed.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tidegate_core::units::Rate;
use tidegate_tls::ClientFiles;

use super::child::{Child, WITHIN};
use crate::admin::Admin;
use crate::error::CliError;

/// The actor in the demo's audit log.
const ACTOR: &str = "demo";
/// Controllers, and members of etcd: one of each may fail.
const THREE: usize = 3;
/// Between two looks at who leads.
const LOOK: Duration = Duration::from_millis(10);

/// The controllers that run, and what they run on.
pub(crate) struct Controllers {
    dir: PathBuf,
    capacity: Rate,
    running: Vec<(usize, Child)>,
    members: Vec<Child>,
    /// Ports of each controller, when there are several.
    ports: Vec<(u16, u16)>,
    /// Where the members answer.
    etcd: Vec<String>,
    endpoints: Vec<String>,
}

impl Controllers {
    /// One controller with its file.
    pub(crate) async fn alone(dir: &Path, capacity: Rate) -> Result<Self, CliError> {
        let mut controllers = Self::none(dir, capacity);
        let endpoint = controllers.start(0).await?;
        controllers.endpoints.push(endpoint);
        Ok(controllers)
    }

    /// Whether three can be run on this machine.
    pub(crate) fn can_be_several() -> Result<(), CliError> {
        installed("etcd", "etcd-server")?;
        installed("setpriv", "util-linux")
    }

    /// Three controllers with their state in etcd, of which one leads.
    pub(crate) async fn cluster(dir: &Path, capacity: Rate) -> Result<Self, CliError> {
        let mut controllers = Self::none(dir, capacity);
        controllers.start_members()?;
        let mut ports = free_ports(2 * THREE)?.into_iter();
        controllers.ports = std::iter::from_fn(|| ports.next().zip(ports.next())).collect();
        let endpoints = controllers.ports.iter().map(|(grpc, _)| format!("http://127.0.0.1:{grpc}"));
        controllers.endpoints = endpoints.collect();
        for index in 0..THREE {
            controllers.start(index).await?;
        }
        Ok(controllers)
    }

    fn none(dir: &Path, capacity: Rate) -> Self {
        Self {
            dir: dir.to_owned(),
            capacity,
            running: Vec::new(),
            members: Vec::new(),
            ports: Vec::new(),
            etcd: Vec::new(),
            endpoints: Vec::new(),
        }
    }

    /// Where they answer; several are separated by commas.
    pub(crate) fn endpoint(&self) -> String {
        self.endpoints.join(",")
    }

    /// Whether there are several.
    pub(crate) fn are_several(&self) -> bool {
        !self.members.is_empty()
    }

    /// The admin service of the one that leads, as soon as one does.
    pub(crate) async fn leader(&self) -> Result<Admin, CliError> {
        let endpoint = self.endpoint();
        let found = async {
            loop {
                let error = match Admin::connect(&endpoint, ACTOR, &ClientFiles::default(), None).await {
                    Ok(admin) if admin.leads().await => return Ok(admin),
                    Ok(_) => CliError::Unavailable(String::new()),
                    Err(error) => error,
                };
                if !error.passes() {
                    return Err(error);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let late = || CliError::Unavailable(format!("no controller led within {WITHIN:?}"));
        tokio::time::timeout(WITHIN, found).await.map_err(|_| late())?
    }

    /// The name of the controller that answers there.
    pub(crate) fn name_of(&self, endpoint: &str) -> String {
        let index = self.endpoints.iter().position(|one| one == endpoint).unwrap_or_default();
        name(index)
    }

    /// Kills the controller that answers there, as `kill -9` does.
    pub(crate) async fn kill(&mut self, endpoint: &str) -> Result<(), CliError> {
        let place = self
            .running
            .iter()
            .position(|(index, _)| self.endpoints.get(*index).is_some_and(|e| e == endpoint));
        match place {
            Some(place) => self.running.remove(place).1.kill().await,
            None => Ok(()),
        }
    }

    /// Starts those again that do not run.
    pub(crate) async fn restart(&mut self) -> Result<(), CliError> {
        for index in 0..self.endpoints.len() {
            if self.running.iter().all(|(running, _)| *running != index) {
                self.start(index).await?;
            }
        }
        Ok(())
    }

    /// Ends them in order, then what they run on.
    pub(crate) async fn stop(self) -> Result<(), CliError> {
        for (_, controller) in self.running {
            controller.stop().await?;
        }
        for member in self.members {
            member.kill().await?;
        }
        Ok(())
    }

    /// Starts a controller, and returns where it answers.
    async fn start(&mut self, index: usize) -> Result<String, CliError> {
        let name = if self.are_several() { name(index) } else { "controller".to_owned() };
        let (grpc, rest) = self.ports.get(index).copied().unwrap_or_default();
        let mut arguments: Vec<OsString> = vec!["controller".into(), "--until-stdin-ends".into()];
        let mut option = |flag: &str, value: OsString| arguments.extend([flag.into(), value]);
        option("--listen", format!("127.0.0.1:{grpc}").into());
        option("--http", format!("127.0.0.1:{rest}").into());
        option("--capacity", self.capacity.to_string().into());
        option("--data", self.dir.join(&name).into());
        if self.are_several() {
            option("--cluster-name", (&name).into());
            self.etcd.iter().for_each(|member| option("--etcd", member.into()));
        }
        let mut child = Child::start(&name, &self.dir.join(format!("{name}.stderr")), arguments)?;
        let endpoint = child.expect("grpc ").await?;
        self.running.push((index, child));
        Ok(endpoint)
    }

    /// Starts the members. They find each other, and controllers wait for them.
    fn start_members(&mut self) -> Result<(), CliError> {
        let ports = free_ports(2 * THREE)?;
        let url =
            |place: usize| format!("http://127.0.0.1:{}", ports.get(place).copied().unwrap_or_default());
        let members: Vec<String> =
            (0..THREE).map(|index| format!("m{index}={}", url(THREE + index))).collect();
        self.etcd = (0..THREE).map(url).collect();
        for (index, clients) in self.etcd.iter().enumerate() {
            let (name, peers) = (format!("m{index}"), url(THREE + index));
            // It knows nothing of a parent that dies.
            let mut arguments: Vec<OsString> =
                ["--pdeathsig", "KILL", "--", "etcd"].map(OsString::from).into();
            for (flag, value) in [
                ("--name", name.as_str().into()),
                ("--data-dir", self.dir.join(format!("etcd-{index}")).into_os_string()),
                ("--listen-client-urls", clients.into()),
                ("--advertise-client-urls", clients.into()),
                ("--listen-peer-urls", (&peers).into()),
                ("--initial-advertise-peer-urls", (&peers).into()),
                ("--initial-cluster", members.join(",").into()),
                ("--log-level", "error".into()),
            ] {
                arguments.extend([flag.into(), value]);
            }
            let log = self.dir.join(format!("etcd-{index}.stderr"));
            self.members.push(Child::start_program("etcd", Path::new("setpriv"), &log, arguments)?);
        }
        Ok(())
    }
}

/// The name of one of several controllers.
fn name(index: usize) -> String {
    format!("c{}", index.saturating_add(1))
}

/// Whether a program can be run.
fn installed(program: &str, package: &str) -> Result<(), CliError> {
    let run = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    match run {
        Ok(output) if output.status.success() => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(CliError::Usage(format!(
            "demo --cluster: {program} is not on the PATH; install it (Debian's package is {package}), or run the demo \
             without --cluster"
        ))),
        Ok(output) => Err(failed(program, String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        Err(error) => Err(failed(program, error.to_string())),
    }
}

/// Ports of the loopback that nobody listens on.
fn free_ports(count: usize) -> Result<Vec<u16>, CliError> {
    // All are held until the last is found, so that they differ.
    let listeners = (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let listeners = listeners.collect::<Result<Vec<_>, _>>();
    let ports = listeners.and_then(|all| all.iter().map(|one| Ok(one.local_addr()?.port())).collect());
    ports.map_err(|error| failed("a free port", error.to_string()))
}

fn failed(what: &str, reason: String) -> CliError {
    CliError::Process { what: what.to_owned(), reason }
}
