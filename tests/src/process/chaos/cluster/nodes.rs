//! The nodes of a run, each with a link to each controller.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::chaos::{NODES, WITHOUT_JOURNAL, works};
use crate::process::child::Process;
use crate::process::cluster::Cluster;
use crate::process::error::{ClusterError, PATIENCE};
use crate::process::proxy::Proxy;

/// The nodes; all are killed when this is dropped.
#[derive(Debug)]
pub(super) struct Nodes {
    folder: PathBuf,
    load_node: PathBuf,
    /// The processes, while they run.
    pub(super) processes: Vec<Option<Process>>,
    /// The links, by node and controller.
    pub(super) links: Vec<Vec<Proxy>>,
}

impl Nodes {
    /// Nodes of which none runs, with their links to these controllers.
    pub(super) async fn new(
        folder: &Path,
        load_node: &Path,
        controllers: &[SocketAddr],
    ) -> Result<Self, ClusterError> {
        let mut links = Vec::new();
        for _ in 0..NODES {
            links.push(ways(controllers).await?);
        }
        let processes = (0..NODES).map(|_| None).collect();
        Ok(Self { folder: folder.to_owned(), load_node: load_node.to_owned(), processes, links })
    }

    /// The logs of what they did.
    pub(super) fn logs(&self) -> Vec<PathBuf> {
        (0..NODES).map(|node| self.folder.join(format!("{}.log", Cluster::node_name(node)))).collect()
    }

    pub(super) fn start(&mut self, index: usize) -> Result<(), ClusterError> {
        let name = Cluster::node_name(index);
        let endpoints = self.links.get(index).into_iter().flatten();
        let endpoints: Vec<String> = endpoints.map(|link| format!("http://{}", link.address())).collect();
        let mut command = Command::new(&self.load_node);
        if WITHOUT_JOURNAL.contains(&index) {
            command.arg("--no-journal");
        }
        command.arg(endpoints.join(",")).arg(&name).arg(&self.folder);
        command.args(works().iter().map(ToString::to_string));
        if let Some(place) = self.processes.get_mut(index) {
            *place = Some(Process::start(command, &name, &self.folder)?);
        }
        Ok(())
    }

    pub(super) fn process(&mut self, index: usize) -> Option<&mut Process> {
        self.processes.get_mut(index).and_then(Option::as_mut)
    }

    pub(super) fn kill(&mut self, index: usize) {
        self.processes.get_mut(index).and_then(Option::take).into_iter().for_each(Process::kill);
    }

    /// Asks all to end, and waits until they have reported everything.
    pub(super) async fn end_all(&mut self) -> Result<(), ClusterError> {
        self.processes.iter().flatten().for_each(Process::terminate);
        for mut node in self.processes.iter_mut().filter_map(Option::take) {
            let status = node.end_within(PATIENCE).await?;
            if !status.success() {
                return Err(node.unexpected(status));
            }
        }
        Ok(())
    }
}

/// A link to each of these.
pub(super) async fn ways(to: &[SocketAddr]) -> Result<Vec<Proxy>, ClusterError> {
    let mut links = Vec::new();
    for address in to {
        links.push(Proxy::start(*address).await?);
    }
    Ok(links)
}
