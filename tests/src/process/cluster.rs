//! A controller and load nodes as processes on loopback, which can be killed and started again.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_proto::v1::{StatusReply, StatusRequest};
use tonic::transport::{Channel, Endpoint};

/// How long a process may take to come up or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a cluster cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A process or file.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What the operating system said.
        error: io::Error,
    },
    /// The binary under test is not there.
    #[error("{0} is not built; run `cargo build -p tidegate-cli` first, as tests/run does")]
    NotBuilt(PathBuf),
    /// A process did not do in time what it should.
    #[error("{what} took longer than {PATIENCE:?}; {log}")]
    TooLate {
        /// What was waited for.
        what: String,
        /// The end of the process's log.
        log: String,
    },
}

fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> ClusterError {
    let what = what.into();
    move |error| ClusterError::Io { what, error }
}

/// The processes of a test; all are killed when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    tidegate: PathBuf,
    load_node: PathBuf,
    ports: (u16, u16),
    group: String,
    /// The controller's files may not grow past this many KiB, as if the disk were full.
    pub disk_kib: Option<u64>,
    controller: Option<Child>,
    nodes: Vec<Option<Child>>,
}

impl Cluster {
    /// A cluster with its files in `folder`; nothing runs yet. `load_node` is the binary of that name.
    ///
    /// # Errors
    /// The `tidegate` binary is not built, or no ports are free.
    pub fn new(folder: &Path, load_node: &Path, nodes: usize, group: &str) -> Result<Self, ClusterError> {
        let tidegate = load_node.with_file_name("tidegate");
        if !tidegate.exists() {
            return Err(ClusterError::NotBuilt(tidegate));
        }
        Ok(Self {
            folder: folder.to_owned(),
            tidegate,
            load_node: load_node.to_owned(),
            ports: free_ports().map_err(io("find two free ports"))?,
            group: group.to_owned(),
            disk_kib: None,
            controller: None,
            nodes: (0..nodes).map(|_| None).collect(),
        })
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.0)
    }

    fn log(&self, name: &str) -> Result<(Stdio, Stdio), ClusterError> {
        let path = self.folder.join(format!("{name}.out"));
        let file = fs::OpenOptions::new().create(true).append(true).open(path).map_err(io("open a log"))?;
        let copy = file.try_clone().map_err(io("open a log"))?;
        Ok((Stdio::from(file), Stdio::from(copy)))
    }

    /// The last lines a process wrote.
    pub fn tail(&self, name: &str) -> String {
        let text = fs::read_to_string(self.folder.join(format!("{name}.out"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(5)..).unwrap_or_default().join("\n")
    }

    /// Starts the controller and waits until it answers.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start_controller(&mut self) -> Result<(), ClusterError> {
        let (out, err) = self.log("controller")?;
        let mut command = match self.disk_kib {
            None => Command::new(&self.tidegate),
            // A process that ignores the signal gets an error from its writes instead.
            Some(kib) => {
                let mut shell = Command::new("bash");
                let script = format!("trap '' XFSZ; ulimit -f {kib}; exec \"$0\" \"$@\"");
                shell.arg("-c").arg(script).arg(&self.tidegate);
                shell
            }
        };
        let child = command
            .arg("controller")
            .arg("--data")
            .arg(self.folder.join("data"))
            .args(["--listen", &format!("127.0.0.1:{}", self.ports.0)])
            .args(["--http", &format!("127.0.0.1:{}", self.ports.1)])
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(io("start the controller"))?;
        self.controller = Some(child);
        self.status().await.map(drop)
    }

    /// The admin service, as soon as it answers.
    ///
    /// # Errors
    /// It does not answer in time.
    pub async fn admin(&self) -> Result<AdminClient<Channel>, ClusterError> {
        let late =
            || ClusterError::TooLate { what: "the controller".to_owned(), log: self.tail("controller") };
        let Ok(endpoint) = Endpoint::from_shared(self.endpoint()) else {
            return Err(late());
        };
        let connect = async {
            loop {
                if let Ok(channel) = endpoint.connect().await {
                    return AdminClient::new(channel);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, connect).await.map_err(|_| late())
    }

    /// The controller's status, as soon as it answers.
    ///
    /// # Errors
    /// It does not answer in time.
    pub async fn status(&self) -> Result<StatusReply, ClusterError> {
        let mut admin = self.admin().await?;
        let reply = admin.status(StatusRequest {}).await;
        reply.map(tonic::Response::into_inner).map_err(|status| ClusterError::TooLate {
            what: format!("the controller's status ({status})"),
            log: self.tail("controller"),
        })
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
        let (out, err) = self.log(&name)?;
        let child = Command::new(&self.load_node)
            .args([self.endpoint(), name, self.group.clone()])
            .arg(&self.folder)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(io("start a node"))?;
        if let Some(place) = self.nodes.get_mut(index) {
            *place = Some(child);
        }
        Ok(())
    }

    /// `kill -9` of the controller.
    pub fn kill_controller(&mut self) {
        kill(&mut self.controller);
    }

    /// `kill -9` of a node.
    pub fn kill_node(&mut self, index: usize) {
        if let Some(node) = self.nodes.get_mut(index) {
            kill(node);
        }
    }

    /// Whether a node still runs.
    pub fn node_runs(&mut self, index: usize) -> bool {
        let node = self.nodes.get_mut(index).and_then(Option::as_mut);
        node.is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Asks all nodes to end, and waits until they have reported everything.
    ///
    /// # Errors
    /// A node does not end, or ends with an error.
    pub async fn stop_nodes(&mut self) -> Result<(), ClusterError> {
        for index in 0..self.nodes.len() {
            let Some(mut child) = self.nodes.get_mut(index).and_then(Option::take) else {
                continue;
            };
            let name = Self::node_name(index);
            terminate(&child);
            let ended = async {
                loop {
                    match child.try_wait() {
                        Ok(None) => tokio::time::sleep(Duration::from_millis(10)).await,
                        ended => return ended,
                    }
                }
            };
            let ended = tokio::time::timeout(PATIENCE, ended).await;
            if !matches!(&ended, Ok(Ok(Some(status))) if status.success()) {
                let _ = child.kill();
                return Err(ClusterError::TooLate {
                    what: format!("{name} ({ended:?})"),
                    log: self.tail(&name),
                });
            }
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        kill(&mut self.controller);
        self.nodes.iter_mut().for_each(kill);
    }
}

fn kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn terminate(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Two ports that were free a moment ago; they must outlive restarts of the controller.
fn free_ports() -> io::Result<(u16, u16)> {
    let (a, b) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    Ok((a.local_addr()?.port(), b.local_addr()?.port()))
}
