//! Controllers of one cluster as processes, with their state in members of etcd.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use tidegate_proto::v1::StatusRequest;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_test_servers::{Etcd, free_port};
use tonic::transport::{Channel, Endpoint};

use super::child::Process;
use super::cluster::ended_as_asked;
use super::error::{ClusterError, PATIENCE, io};

/// Attempts of a command that the leader does not take: a beat is late for seconds at most.
const ATTEMPTS: usize = 500;
/// Between two looks at who leads.
const LOOK: Duration = Duration::from_millis(10);
/// An answer to such a look comes at once, or not at all: from a process that stands still.
const ANSWER: Duration = Duration::from_millis(300);

/// What a leader says that may not speak to nodes.
pub(crate) const SILENT: &str = "no grants: ";

/// Controllers with their state in etcd; all are killed when this is dropped.
#[derive(Debug)]
pub struct Controllers {
    /// The members of etcd.
    pub etcd: Etcd,
    folder: PathBuf,
    tidegate: PathBuf,
    ports: Vec<(u16, u16)>,
    /// Where each of them finds etcd.
    ways: Vec<Vec<String>>,
    /// Their answers to nodes wait for beats.
    is_strict: bool,
    /// Their fence, if it is not the usual one.
    fence: Option<&'static str>,
    processes: Vec<Option<Process>>,
}

impl Controllers {
    /// A cluster of `count` controllers, of which none runs yet. `load_node` is a binary beside `tidegate`.
    ///
    /// # Errors
    /// The binary is not built, etcd does not start, or no ports are free.
    pub fn new(folder: &Path, load_node: &Path, count: usize) -> Result<Self, ClusterError> {
        let tidegate = load_node.with_file_name("tidegate");
        if !tidegate.exists() {
            return Err(ClusterError::NotBuilt(tidegate));
        }
        let etcd = Etcd::start(3, &[]).map_err(|error| ClusterError::Refused {
            what: "start etcd".to_owned(),
            reason: error.to_string(),
        })?;
        let port = || free_port().map_err(ClusterError::Port);
        let ports = (0..count).map(|_| Ok((port()?, port()?))).collect::<Result<_, ClusterError>>()?;
        let processes = (0..count).map(|_| None).collect();
        let ways = vec![etcd.endpoints(); count];
        Ok(Self {
            etcd,
            folder: folder.to_owned(),
            tidegate,
            ports,
            ways,
            is_strict: false,
            fence: None,
            processes,
        })
    }

    /// Starts a controller, without waiting for it.
    ///
    /// # Errors
    /// There is no such process.
    pub fn start(&mut self, index: usize) -> Result<(), ClusterError> {
        let Some((grpc, rest)) = self.ports.get(index).copied() else { return Ok(()) };
        let name = format!("c{index}");
        let mut command = Command::new(&self.tidegate);
        command
            .arg("controller")
            .arg("--data")
            .arg(self.folder.join(&name))
            .args(["--listen", &local(grpc).to_string(), "--http", &local(rest).to_string()])
            .args(["--cluster-name", &name])
            .args(self.is_strict.then_some("--cluster-strict"))
            .args(self.fence.into_iter().flat_map(|fence| ["--fence", fence]));
        for endpoint in self.ways.get(index).into_iter().flatten() {
            command.args(["--etcd", endpoint]);
        }
        let process = Process::start(command, &name, &self.folder)?;
        if let Some(place) = self.processes.get_mut(index) {
            *place = Some(process);
        }
        Ok(())
    }

    /// From their next starts on, answers of controllers to nodes wait for beats.
    pub fn be_strict(&mut self) {
        self.is_strict = true;
    }

    /// From their next starts on, they have this fence: with a long one, a busy machine is no reason to take over.
    pub fn have_fence(&mut self, fence: &'static str) {
        self.fence = Some(fence);
    }

    /// The data of a controller.
    pub fn data(&self, index: usize) -> PathBuf {
        self.folder.join(format!("c{index}"))
    }

    /// From its next start on, a controller finds the members of etcd there.
    pub fn finds_etcd_at(&mut self, index: usize, endpoints: Vec<String>) {
        if let Some(way) = self.ways.get_mut(index) {
            *way = endpoints;
        }
    }

    /// Deletes the files of a controller that does not run.
    ///
    /// # Errors
    /// They cannot be deleted.
    pub fn forget(&self, index: usize) -> Result<(), ClusterError> {
        let data = self.data(index);
        std::fs::remove_dir_all(&data).map_err(io(format!("delete {}", data.display())))
    }

    /// The binary that runs.
    pub fn binary(&self) -> &Path {
        &self.tidegate
    }

    /// A controller's process, while it runs.
    pub fn process(&mut self, index: usize) -> Option<&mut Process> {
        self.processes.get_mut(index).and_then(Option::as_mut)
    }

    /// `kill -9` of a controller.
    pub fn kill(&mut self, index: usize) {
        self.processes.get_mut(index).and_then(Option::take).into_iter().for_each(Process::kill);
    }

    /// Asks a controller to end, and waits for it.
    ///
    /// # Errors
    /// It does not end in time, or with an error.
    pub async fn end(&mut self, index: usize) -> Result<(), ClusterError> {
        self.end_with(index, |status| status.success()).await
    }

    /// The same of one that may have been started so shortly before that it does not heed the signal yet.
    ///
    /// # Errors
    /// It does not end in time, or with an error.
    pub async fn end_early(&mut self, index: usize) -> Result<(), ClusterError> {
        self.end_with(index, ended_as_asked).await
    }

    async fn end_with(
        &mut self,
        index: usize,
        well: impl Fn(ExitStatus) -> bool,
    ) -> Result<(), ClusterError> {
        let Some(mut process) = self.processes.get_mut(index).and_then(Option::take) else { return Ok(()) };
        process.terminate();
        let status = process.end_within(PATIENCE).await?;
        if well(status) { Ok(()) } else { Err(process.unexpected(status)) }
    }

    /// Where they answer nodes, one by one.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|(grpc, _)| local(*grpc)).collect()
    }

    /// Where they answer REST, one by one.
    pub fn rest_addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|(_, rest)| local(*rest)).collect()
    }

    /// Where all of them answer.
    pub fn endpoints(&self) -> Vec<String> {
        self.addresses().into_iter().map(|address| format!("http://{address}")).collect()
    }

    /// The one that leads, if one answers that it does and is not silent, and its epoch.
    pub async fn leader(&self) -> Option<(usize, u64)> {
        for (index, endpoint) in self.endpoints().into_iter().enumerate() {
            let asked = async {
                let mut admin = AdminClient::new(Endpoint::from_shared(endpoint).ok()?.connect().await.ok()?);
                let status = admin.status(StatusRequest {}).await.ok()?.into_inner();
                let is_silent = status.warnings.iter().any(|warning| warning.starts_with(SILENT));
                (!is_silent).then_some(status.epoch)
            };
            if let Ok(Some(epoch)) = tokio::time::timeout(ANSWER, asked).await {
                return Some((index, epoch));
            }
        }
        None
    }

    /// Waits until a controller other than `not` leads.
    ///
    /// # Errors
    /// None does in time.
    pub async fn successor(&self, not: Option<usize>) -> Result<(usize, u64), ClusterError> {
        let found = async {
            loop {
                match self.leader().await {
                    Some((index, epoch)) if Some(index) != not => return (index, epoch),
                    _ => tokio::time::sleep(LOOK).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, found).await.map_err(|_| ClusterError::TooLate {
            what: "a controller that leads".to_owned(),
            log: self.logs(),
        })
    }

    /// Waits until a controller says that it stands by.
    ///
    /// # Errors
    /// It does not in time.
    pub async fn stands_by(&self, index: usize) -> Result<(), ClusterError> {
        let said = async {
            loop {
                if let Ok(mut admin) = self.admin(index).await
                    && let Err(status) = admin.status(StatusRequest {}).await
                    && status.message().contains("is a standby of")
                {
                    return;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let late = tokio::time::timeout(PATIENCE, said).await;
        late.map_err(|_| ClusterError::TooLate { what: format!("c{index} standing by"), log: self.logs() })
    }

    /// The admin service of a controller.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn admin(&self, index: usize) -> Result<AdminClient<Channel>, ClusterError> {
        let refused = |reason: String| ClusterError::Refused { what: "connect".to_owned(), reason };
        let endpoint = self.endpoints().into_iter().nth(index).unwrap_or_default();
        let endpoint = Endpoint::from_shared(endpoint).map_err(|error| refused(error.to_string()))?;
        Ok(AdminClient::new(endpoint.connect().await.map_err(|error| refused(error.to_string()))?))
    }

    /// The lines that a command of the binary prints, which is given all addresses. It is tried again while the leader
    /// takes no calls, since its beat is late on a busy machine.
    ///
    /// # Errors
    /// It fails.
    pub fn tidegate(&self, arguments: &[&str]) -> Result<Vec<String>, ClusterError> {
        let mut reason = String::new();
        for _ in 0..ATTEMPTS {
            let mut command = Command::new(&self.tidegate);
            let output = command.args(arguments).args(["--endpoint", &self.endpoints().join(",")]).output();
            let output = output.map_err(io("run tidegate"))?;
            if output.status.success() {
                return Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect());
            }
            reason = String::from_utf8_lossy(&output.stderr).into_owned();
            if !reason.contains("may have a successor") {
                break;
            }
            std::thread::park_timeout(LOOK);
        }
        Err(ClusterError::Refused { what: arguments.join(" "), reason })
    }

    /// The last lines of all logs.
    pub fn logs(&self) -> String {
        let tails = self.processes.iter().enumerate().map(|(index, process)| {
            let tail = process.as_ref().map_or_else(|| "is down".to_owned(), Process::tail);
            format!("c{index}: {tail}")
        });
        tails.collect::<Vec<_>>().join("\n")
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
