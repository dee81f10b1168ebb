//! A controller and load nodes as processes on loopback, each node behind a proxy of its own.
//!
//! The binaries are found beside each other: `load-node` is given, `tidegate` must stand next to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Signal, geteuid};
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_proto::v1::{StatusReply, StatusRequest};
use tidegate_test_servers::free_port;
use tonic::transport::{Channel, Endpoint};

use super::child::{Process, output_of, tail};
use super::error::{ClusterError, PATIENCE};
use super::load::Work;
use super::proxy::Proxy;

/// Exit status of a load node that could not confirm everything.
const UNCONFIRMED: i32 = 3;

/// What a started controller may do to its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disk {
    /// Everything.
    #[default]
    Free,
    /// No file may grow past this many KiB, as if the disk were full.
    Full(u64),
    /// Everything, until it is taken away with [`Process::writes`].
    Failing,
    /// What the permissions allow, even if it runs as root.
    Permitted,
}

/// The processes of a test; all are killed when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    tidegate: PathBuf,
    load_node: PathBuf,
    ports: (u16, u16),
    works: Vec<Work>,
    /// What the controller may write.
    pub disk: Disk,
    /// Nodes that keep no journal, so that their threads pay from purses, and what they did not report dies with them.
    pub without_journal: Vec<usize>,
    /// The controller, while it runs.
    pub controller: Option<Process>,
    /// The nodes, while they run.
    pub nodes: Vec<Option<Process>>,
    /// Their links to the controller.
    pub links: Vec<Proxy>,
}

impl Cluster {
    /// A cluster with its files in `folder`; nothing runs yet but the proxies. `load_node` is the binary of that name.
    ///
    /// # Errors
    /// The `tidegate` binary is not built, or no ports are free.
    pub async fn new(
        folder: &Path,
        load_node: &Path,
        nodes: usize,
        works: Vec<Work>,
    ) -> Result<Self, ClusterError> {
        let tidegate = load_node.with_file_name("tidegate");
        if !tidegate.exists() {
            return Err(ClusterError::NotBuilt(tidegate));
        }
        // They outlive restarts of the controller.
        let port = || free_port().map_err(ClusterError::Port);
        let ports = (port()?, port()?);
        let mut links = Vec::new();
        for _ in 0..nodes {
            links.push(Proxy::start(local(ports.0)).await?);
        }
        Ok(Self {
            folder: folder.to_owned(),
            tidegate,
            load_node: load_node.to_owned(),
            ports,
            works,
            disk: Disk::Free,
            without_journal: Vec::new(),
            controller: None,
            nodes: (0..nodes).map(|_| None).collect(),
            links,
        })
    }

    /// Where the controller answers, without a proxy between.
    pub fn endpoint(&self) -> String {
        format!("http://{}", local(self.ports.0))
    }

    /// A command of the binary under test, with arguments to come.
    pub fn tidegate(&self) -> Command {
        Command::new(&self.tidegate)
    }

    /// The last lines a process wrote.
    pub fn tail(&self, name: &str) -> String {
        tail(&output_of(&self.folder, name))
    }

    /// The controller's store.
    pub fn store(&self) -> PathBuf {
        self.folder.join("data").join("tidegate.redb")
    }

    /// Starts the controller and waits until it answers.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start_controller(&mut self) -> Result<(), ClusterError> {
        self.launch_controller()?;
        self.status().await.map(drop)
    }

    /// Starts the controller without waiting for it.
    ///
    /// # Errors
    /// There is no such process.
    pub fn launch_controller(&mut self) -> Result<(), ClusterError> {
        let mut command = match self.disk {
            Disk::Free => self.tidegate(),
            Disk::Full(kib) => self.under_bash(&format!("ulimit -f {kib}")),
            Disk::Failing => self.under_bash("true"),
            Disk::Permitted if geteuid().is_root() => {
                let mut setpriv = Command::new("setpriv");
                setpriv.arg("--bounding-set=-dac_override,-dac_read_search").arg(&self.tidegate);
                setpriv
            }
            Disk::Permitted => self.tidegate(),
        };
        command
            .arg("controller")
            .arg("--data")
            .arg(self.folder.join("data"))
            .args(["--listen", &local(self.ports.0).to_string()])
            .args(["--http", &local(self.ports.1).to_string()]);
        self.controller = Some(Process::start(command, "controller", &self.folder)?);
        Ok(())
    }

    /// The binary after a command of the shell. A process that ignores the signal XFSZ gets an error instead of it
    /// when it writes past a limit.
    fn under_bash(&self, before: &str) -> Command {
        let mut shell = Command::new("bash");
        shell.arg("-c").arg(format!("trap '' XFSZ; {before}; exec \"$0\" \"$@\"")).arg(&self.tidegate);
        shell
    }

    /// The admin service, as soon as it answers.
    ///
    /// # Errors
    /// It does not answer in time, or the controller has ended.
    pub async fn admin(&mut self) -> Result<AdminClient<Channel>, ClusterError> {
        let endpoint = Endpoint::from_shared(self.endpoint()).map_err(|error| self.no_answer(&error))?;
        let connect = async {
            loop {
                if let Ok(channel) = endpoint.connect().await {
                    return Ok(AdminClient::new(channel));
                }
                if let Some(controller) = &mut self.controller
                    && let Some(status) = controller.ended()
                {
                    return Err(controller.unexpected(status));
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let connected = tokio::time::timeout(PATIENCE, connect).await;
        connected.unwrap_or_else(|late| Err(self.no_answer(&late)))
    }

    /// The controller's status, as soon as it answers.
    ///
    /// # Errors
    /// It does not answer in time.
    pub async fn status(&mut self) -> Result<StatusReply, ClusterError> {
        let answered = async {
            loop {
                // A port without a listener can connect to itself: such a connection is reset, not answered.
                if let Ok(reply) = self.admin().await?.status(StatusRequest {}).await {
                    return Ok(reply.into_inner());
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(answer) => answer,
            Err(late) => Err(self.no_answer(&late)),
        }
    }

    fn no_answer(&self, why: &dyn std::fmt::Display) -> ClusterError {
        ClusterError::TooLate {
            what: format!("the controller's answer ({why})"),
            log: self.tail("controller"),
        }
    }

    /// Name of a node.
    pub fn node_name(index: usize) -> String {
        format!("node-{index}")
    }

    /// The log of what a node did.
    pub fn node_log(&self, index: usize) -> PathBuf {
        self.folder.join(format!("{}.log", Self::node_name(index)))
    }

    /// Starts a node.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_node(&mut self, index: usize) -> Result<(), ClusterError> {
        let name = Self::node_name(index);
        let (Some(place), Some(link)) = (self.nodes.get_mut(index), self.links.get(index)) else {
            return Ok(());
        };
        let mut command = Command::new(&self.load_node);
        if self.without_journal.contains(&index) {
            command.arg("--no-journal");
        }
        command.arg(format!("http://{}", link.address())).arg(&name).arg(&self.folder);
        command.args(self.works.iter().map(ToString::to_string));
        *place = Some(Process::start(command, &name, &self.folder)?);
        Ok(())
    }

    /// `kill -9` of the controller.
    pub fn kill_controller(&mut self) {
        self.controller.take().into_iter().for_each(Process::kill);
    }

    /// `kill -9` of a node.
    pub fn kill_node(&mut self, index: usize) {
        self.nodes.get_mut(index).and_then(Option::take).into_iter().for_each(Process::kill);
    }

    /// Asks all nodes to end, and waits until they have reported everything.
    ///
    /// # Errors
    /// A node does not end, or ends with an error.
    pub async fn stop_nodes(&mut self) -> Result<(), ClusterError> {
        self.nodes.iter().flatten().for_each(Process::terminate);
        for node in self.nodes.iter_mut().filter_map(Option::take) {
            let mut node = node;
            let status = node.end_within(PATIENCE).await?;
            if !status.success() {
                return Err(node.unexpected(status));
            }
        }
        Ok(())
    }
}

/// A process that was asked to end did; a node may not have got its last reports confirmed. Of the signal itself a
/// process ends that was not yet ready for it.
pub fn ended_as_asked(status: ExitStatus) -> bool {
    let asked = status.signal() == Some(Signal::TERM.as_raw());
    status.success() || status.code() == Some(UNCONFIRMED) || asked
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
