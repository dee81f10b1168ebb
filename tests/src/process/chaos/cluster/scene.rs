//! The processes and links of a run with a cluster, and what is to be mended when.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::looks::Looks;
use super::nodes::{Nodes, ways};
use crate::process::chaos::tally::{Silence, Stop, Tally};
use crate::process::chaos::{NODES, Settings};
use crate::process::child::Process;
use crate::process::cluster::ended_as_asked;
use crate::process::controllers::Controllers;
use crate::process::error::{ClusterError, PATIENCE, io, refused};
use crate::process::log::machine_micros;
use crate::process::proxy::{Proxy, Weather};

/// Controllers, and members of etcd.
pub(super) const THREE: usize = 3;
/// No beat is stored any more: after a fence, which is the default, and a hundredth for clocks, nothing is granted.
const FENCE_US: u64 = 1_010_000;

/// How a fault ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mend {
    StartController(usize),
    ContinueController(usize),
    StartMember(usize),
    ContinueMember(usize),
    /// The links between a controller and etcd.
    Engine(usize),
    /// The links between all nodes and a controller.
    NodesOf(usize),
    /// The links of a node.
    Node(usize),
    StartNode(usize),
    ContinueNode(usize),
}

/// A run under way.
pub(super) struct Scene {
    pub(super) controllers: Controllers,
    pub(super) nodes: Nodes,
    pub(super) tally: Tally,
    pub(super) looks: Looks,
    /// Starts of each controller.
    pub(super) starts: Vec<Arc<AtomicU64>>,
    /// Starts of all controllers, for those who want to look at what they hold after each.
    pub(super) all_starts: Arc<AtomicU64>,
    /// The links of each controller to each member.
    pub(super) engine: Vec<Vec<Proxy>>,
    /// Controllers that stand still, and nodes since when.
    pub(super) stopped: Vec<bool>,
    stopped_nodes: Vec<Option<u64>>,
    /// Nodes that were asked to end.
    pub(super) ending: Vec<bool>,
    /// Nodes that reach no controller, since when.
    cut: Vec<Option<u64>>,
    /// Members that are away or stand still.
    pub(super) absent: Vec<bool>,
    /// No grant can be made, since when.
    dumb: Option<u64>,
    mends: BTreeMap<(u64, u64), Mend>,
    ordered: u64,
}

impl Scene {
    /// Controllers that run, of which one leads, and nodes that do not yet.
    pub(super) async fn new(settings: &Settings) -> Result<Self, ClusterError> {
        fs::create_dir_all(&settings.folder).map_err(io(format!("make {}", settings.folder.display())))?;
        let file = File::create(settings.folder.join("faults.log")).map_err(io("make faults.log"))?;
        let mut controllers = Controllers::new(&settings.folder, &settings.load_node, THREE)?;
        if settings.strict {
            controllers.be_strict();
        }
        let members = controllers.etcd.endpoints();
        let members =
            members.iter().filter_map(|endpoint| endpoint.trim_start_matches("http://").parse().ok());
        let members: Vec<SocketAddr> = members.collect();
        let mut engine = Vec::new();
        for index in 0..THREE {
            let links = ways(&members).await?;
            let found = links.iter().map(|link| format!("http://{}", link.address())).collect();
            controllers.finds_etcd_at(index, found);
            engine.push(links);
        }
        let nodes = Nodes::new(&settings.folder, &settings.load_node, &controllers.addresses()).await?;
        let starts: Vec<Arc<AtomicU64>> = (0..THREE).map(|_| Arc::default()).collect();
        let looks = Looks::begin(&controllers.endpoints(), &starts);
        let looks = looks.map_err(|error| refused("look at the controllers", error))?;
        let mut scene = Self {
            controllers,
            nodes,
            tally: Tally::new(file),
            looks,
            starts,
            all_starts: Arc::default(),
            engine,
            stopped: vec![false; THREE],
            stopped_nodes: vec![None; NODES],
            ending: vec![false; NODES],
            cut: vec![None; NODES],
            absent: vec![false; THREE],
            dumb: None,
            mends: BTreeMap::new(),
            ordered: 0,
        };
        for index in 0..THREE {
            scene.start_controller(index)?;
        }
        scene.controllers.successor(None).await?;
        Ok(scene)
    }

    pub(super) fn start_controller(&mut self, index: usize) -> Result<(), ClusterError> {
        if self.controllers.process(index).is_some() {
            return Ok(());
        }
        if (0..THREE).all(|index| self.controllers.process(index).is_none()) {
            self.speaks_again();
        }
        if let Some(starts) = self.starts.get(index) {
            starts.fetch_add(1, Ordering::SeqCst);
        }
        self.all_starts.fetch_add(1, Ordering::Relaxed);
        self.tally.note(&format!("start c{index}"));
        self.controllers.start(index)
    }

    /// `kill -9` of a controller, which is started again after a while.
    pub(super) fn kill_controller(&mut self, index: usize, away_ms: u64) {
        self.controllers.kill(index);
        if let Some(stopped) = self.stopped.get_mut(index) {
            *stopped = false;
        }
        if (0..THREE).all(|index| self.controllers.process(index).is_none()) {
            self.dumb.get_or_insert_with(machine_micros);
        }
        self.later(away_ms, Mend::StartController(index));
    }

    /// A member is away or stands still from now on.
    pub(super) fn is_absent(&mut self, index: usize) {
        if let Some(absent) = self.absent.get_mut(index) {
            *absent = true;
        }
        if self.absent.iter().filter(|absent| **absent).count() > THREE / 2 {
            self.dumb.get_or_insert_with(|| machine_micros() + FENCE_US);
        }
    }

    /// A node reaches no controller from now on.
    pub(super) fn is_cut(&mut self, node: usize) {
        if let Some(cut) = self.cut.get_mut(node) {
            cut.get_or_insert_with(machine_micros);
        }
    }

    fn speaks_again(&mut self) {
        if let Some(from_us) = self.dumb.take()
            && machine_micros() > from_us
        {
            self.tally.silences.push(Silence { node: None, from_us, to_us: machine_micros() });
        }
    }

    pub(super) fn later(&mut self, in_ms: u64, mend: Mend) {
        self.ordered += 1;
        self.mends.insert((self.tally.now_us() + in_ms * 1_000, self.ordered), mend);
    }

    /// Whether all faults are over, but for members that were lost for longer.
    pub(super) fn is_whole(&self) -> bool {
        self.mends.values().all(|mend| matches!(mend, Mend::StartMember(_)))
            && !self.ending.iter().any(|ending| *ending)
    }

    /// Whether somebody has to lead soon: two controllers live and reach etcd, whose majority lives.
    pub(super) fn can_lead(&mut self) -> bool {
        let lives = |scene: &mut Self, index: usize| {
            let stopped = scene.stopped.get(index).copied().unwrap_or_default();
            let links = scene.engine.get(index).into_iter().flatten();
            let clear = links.filter(|link| !(link.weather().up.cut || link.weather().down.cut)).count();
            scene.controllers.process(index).is_some() && !stopped && clear == THREE
        };
        let living = (0..THREE).filter(|index| lives(self, *index)).count();
        living > 1 && self.absent.iter().filter(|absent| **absent).count() <= 1
    }

    /// Mends what is due, and starts nodes again that have ended as they were asked.
    pub(super) fn mend(&mut self) -> Result<(), ClusterError> {
        while let Some(((at, _), _)) = self.mends.first_key_value()
            && *at <= self.tally.now_us()
        {
            if let Some((_, mend)) = self.mends.pop_first() {
                self.mend_one(mend)?;
            }
        }
        self.watch_ends()
    }

    fn mend_one(&mut self, mend: Mend) -> Result<(), ClusterError> {
        self.tally.note(&format!("{mend:?}"));
        match mend {
            Mend::StartController(index) => self.start_controller(index)?,
            Mend::ContinueController(index) => {
                let stopped = self.stopped.get_mut(index).map(std::mem::take).unwrap_or_default();
                self.controllers.process(index).filter(|_| stopped).into_iter().for_each(|p| p.go_on());
            }
            Mend::StartMember(index) | Mend::ContinueMember(index) => self.mend_member(mend, index)?,
            Mend::Engine(index) => self.engine.get(index).into_iter().flatten().for_each(clear),
            Mend::NodesOf(index) => {
                self.nodes.links.iter().filter_map(|links| links.get(index)).for_each(clear);
            }
            Mend::Node(node) => {
                if let Some(from_us) = self.cut.get_mut(node).and_then(Option::take) {
                    let to_us = machine_micros();
                    self.tally.silences.push(Silence { node: Some(node), from_us, to_us });
                }
                self.nodes.links.get(node).into_iter().flatten().for_each(clear);
            }
            Mend::StartNode(node) if self.nodes.process(node).is_none() => self.nodes.start(node)?,
            Mend::ContinueNode(node) => self.continue_node(node),
            Mend::StartNode(_) => {}
        }
        Ok(())
    }

    fn mend_member(&mut self, mend: Mend, index: usize) -> Result<(), ClusterError> {
        if !self.absent.get_mut(index).map(std::mem::take).unwrap_or_default() {
            return Ok(());
        }
        if self.absent.iter().filter(|absent| **absent).count() <= THREE / 2 {
            self.speaks_again();
        }
        let etcd = &mut self.controllers.etcd;
        let done = tokio::task::block_in_place(|| match mend {
            Mend::StartMember(_) => etcd.run(index),
            _ => etcd.resume(index),
        });
        done.map_err(|error| refused("mend etcd", error))
    }

    /// A node stands still from now on.
    pub(super) fn node_is_stopped(&mut self, node: usize) {
        if let Some(stopped) = self.stopped_nodes.get_mut(node) {
            *stopped = Some(machine_micros());
        }
    }

    /// Whether a node runs, and was not asked to end.
    pub(super) fn node_is_up(&mut self, node: usize) -> bool {
        let is = |flags: &[bool]| flags.get(node).copied().unwrap_or_default();
        let stopped = self.stopped_nodes.get(node).copied().flatten().is_some();
        self.nodes.process(node).is_some() && !is(&self.ending) && !stopped
    }

    fn continue_node(&mut self, node: usize) {
        let Some(from_us) = self.stopped_nodes.get_mut(node).and_then(Option::take) else { return };
        let to_us = machine_micros();
        let Some(process) = self.nodes.process(node) else { return };
        if process.stands_still() {
            self.tally.stops.push(Stop { node, from_us, to_us });
        } else {
            self.tally.broken_stops += 1;
        }
        process.go_on();
    }

    /// Ends the stop of a node that is killed now.
    pub(super) fn node_dies(&mut self, node: usize) {
        if let Some(stopped) = self.stopped_nodes.get_mut(node).and_then(Option::take) {
            self.tally.stops.push(Stop { node, from_us: stopped, to_us: machine_micros() });
        }
        self.nodes.kill(node);
        if let Some(ending) = self.ending.get_mut(node) {
            *ending = false;
        }
    }

    fn watch_ends(&mut self) -> Result<(), ClusterError> {
        for index in 0..THREE {
            if let Some(process) = self.controllers.process(index)
                && let Some(status) = process.ended()
            {
                return Err(process.unexpected(status));
            }
        }
        for node in 0..NODES {
            let asked = self.ending.get(node).copied().unwrap_or_default();
            let Some(process) = self.nodes.process(node) else { continue };
            let Some(status) = process.ended() else { continue };
            if !asked || !ended_as_asked(status) {
                return Err(process.unexpected(status));
            }
            self.tally.clean_ends += u64::from(status.success());
            self.node_dies(node);
            self.nodes.start(node)?;
        }
        Ok(())
    }

    /// Ends all faults, and waits until somebody leads and all controllers run.
    pub(super) async fn calm(&mut self) -> Result<(), ClusterError> {
        self.tally.note("calm");
        for (_, mend) in std::mem::take(&mut self.mends) {
            self.mend_one(mend)?;
        }
        let ended = async {
            while self.ending.iter().any(|ending| *ending) {
                self.watch_ends()?;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        };
        let late = |what: &str| ClusterError::TooLate { what: what.to_owned(), log: String::new() };
        tokio::time::timeout(PATIENCE, ended).await.map_err(|_| late("a node that was asked to end"))??;
        let waited = tokio::task::block_in_place(|| self.controllers.etcd.wait());
        waited.map_err(|error| refused("wait for etcd", error))?;
        self.controllers.successor(None).await.map(drop)
    }

    /// Stops a process of those that run; false when there is none.
    pub(super) async fn halt(process: Option<&mut Process>) -> Result<bool, ClusterError> {
        match process {
            Some(process) => process.stop().await,
            None => Ok(false),
        }
    }
}

/// Fair weather on a link. What a cut held back is lost with its connections.
fn clear(link: &Proxy) {
    link.set(|weather| *weather = Weather { dropped: weather.dropped + 1, ..Weather::default() });
}
