//! The processes of a run and what is done to them: faults begin at their time, and end or are mended later.

mod suffer;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::fault::Fault;
use super::tally::{Silence, Stop, Tally};
use super::{NODES, Settings, WITHOUT_JOURNAL, links, works};
use crate::process::child::Process;
use crate::process::cluster::{Cluster, ended_as_asked};
use crate::process::error::{ClusterError, PATIENCE, io};
use crate::process::log::machine_micros;
use tidegate_sim::random::Random;

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// It runs.
    Up,
    /// It stands still since then.
    Stopped(u64),
    /// It was asked to end.
    Ending,
    /// It is gone since then.
    Away(u64),
}

/// How a fault ends.
#[derive(Clone, Debug)]
enum Mend {
    /// SIGCONT, for the process with this number of starts.
    Continue(Place, u64),
    /// The process is started.
    Start(Place),
    /// The link of a node gets better.
    Link(usize, Fault, Random),
}

/// A process of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Controller,
    Node(usize),
}

/// What is known of a place.
#[derive(Clone, Copy, Debug)]
struct State {
    mode: Mode,
    starts: u64,
}

/// A run under way.
#[derive(Debug)]
pub struct Scene {
    /// The processes.
    pub cluster: Cluster,
    /// What happened.
    pub tally: Tally,
    /// Starts of the controller, for those who want to look at it after each.
    pub starts: Arc<AtomicU64>,
    controller: State,
    nodes: Vec<State>,
    /// When each link was cut, if it is.
    cuts: Vec<Option<u64>>,
    mends: BTreeMap<(u64, u64), Mend>,
    ordered: u64,
}

impl Scene {
    /// A cluster of which nothing runs yet.
    ///
    /// # Errors
    /// The folder cannot be used, or a binary is missing.
    pub async fn new(settings: &Settings) -> Result<Self, ClusterError> {
        fs::create_dir_all(&settings.folder).map_err(io(format!("make {}", settings.folder.display())))?;
        let file = File::create(settings.folder.join("faults.log")).map_err(io("make faults.log"))?;
        let away = State { mode: Mode::Away(machine_micros()), starts: 0 };
        let mut cluster = Cluster::new(&settings.folder, &settings.load_node, NODES, works()).await?;
        cluster.without_journal = WITHOUT_JOURNAL.to_vec();
        Ok(Self {
            cluster,
            tally: Tally::new(file),
            starts: Arc::default(),
            controller: away,
            nodes: vec![away; NODES],
            cuts: vec![None; NODES],
            mends: BTreeMap::new(),
            ordered: 0,
        })
    }

    /// Starts the controller and waits until it answers.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start_controller(&mut self) -> Result<(), ClusterError> {
        self.start(Place::Controller)?;
        self.cluster.status().await.map(drop)
    }

    /// Starts all nodes.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn start_nodes(&mut self) -> Result<(), ClusterError> {
        (0..NODES).try_for_each(|node| self.start(Place::Node(node)))
    }

    fn state(&mut self, place: Place) -> &mut State {
        match place {
            Place::Controller => &mut self.controller,
            Place::Node(node) => self.nodes.get_mut(node).unwrap_or(&mut self.controller),
        }
    }

    fn start(&mut self, place: Place) -> Result<(), ClusterError> {
        let Mode::Away(since) = self.state(place).mode else {
            return Ok(());
        };
        if place == Place::Controller {
            self.tally.silences.push(Silence { node: None, from_us: since, to_us: machine_micros() });
            self.cluster.launch_controller()?;
            self.starts.fetch_add(1, Ordering::Relaxed);
        } else if let Place::Node(node) = place {
            self.cluster.start_node(node)?;
        }
        self.tally.note(&format!("start {place:?}"));
        let state = self.state(place);
        *state = State { mode: Mode::Up, starts: state.starts + 1 };
        Ok(())
    }

    fn later(&mut self, in_ms: u64, mend: Mend) {
        self.ordered += 1;
        self.mends.insert((self.tally.now_us() + in_ms * 1_000, self.ordered), mend);
    }

    /// When something is to be mended next.
    pub fn next_us(&self) -> u64 {
        self.mends.first_key_value().map_or(u64::MAX, |((at, _), _)| *at)
    }

    /// Mends what is due, and starts again what has ended as it was asked.
    ///
    /// # Errors
    /// A process has ended by itself.
    pub fn mend(&mut self) -> Result<(), ClusterError> {
        while self.next_us() <= self.tally.now_us() {
            match self.mends.pop_first() {
                Some((_, Mend::Continue(place, starts))) if self.state(place).starts == starts => {
                    self.go_on(place);
                }
                Some((_, Mend::Start(place))) => self.start(place)?,
                Some((_, Mend::Link(node, fault, mut random))) => self.mend_link(node, fault, &mut random),
                _ => {}
            }
        }
        self.watch_ends()
    }

    fn watch_ends(&mut self) -> Result<(), ClusterError> {
        for place in std::iter::once(Place::Controller).chain((0..NODES).map(Place::Node)) {
            let asked = self.state(place).mode == Mode::Ending;
            let process = match place {
                Place::Controller => &mut self.cluster.controller,
                Place::Node(node) => match self.cluster.nodes.get_mut(node) {
                    Some(process) => process,
                    None => continue,
                },
            };
            let Some((status, unexpected)) =
                process.as_mut().and_then(|p| p.ended().map(|status| (status, p.unexpected(status))))
            else {
                continue;
            };
            if !asked || !ended_as_asked(status) {
                return Err(unexpected);
            }
            *process = None;
            self.tally.clean_ends += u64::from(status.success());
            self.tally.note(&format!("{place:?} has ended, {status}"));
            self.state(place).mode = Mode::Away(machine_micros());
            self.start(place)?;
        }
        Ok(())
    }

    fn go_on(&mut self, place: Place) {
        self.ends_stop(place);
        if let Mode::Stopped(_) = self.state(place).mode {
            self.state(place).mode = Mode::Up;
            self.tally.note(&format!("{place:?} goes on"));
            self.process(place).into_iter().for_each(Process::go_on);
        }
    }

    /// Records a stop that ends now, before the process can do anything. It proves nothing when someone else on the
    /// machine has let the process go on.
    fn ends_stop(&mut self, place: Place) {
        let Mode::Stopped(from_us) = self.state(place).mode else {
            return;
        };
        let to_us = machine_micros();
        if !self.process(place).is_some_and(Process::stands_still) {
            self.tally.broken_stops += 1;
            self.tally.note(&format!("{place:?} was let go on by someone else"));
            return;
        }
        match place {
            Place::Controller => self.tally.silences.push(Silence { node: None, from_us, to_us }),
            Place::Node(node) => self.tally.stops.push(Stop { node, from_us, to_us }),
        }
    }

    fn process(&self, place: Place) -> Option<&Process> {
        match place {
            Place::Controller => self.cluster.controller.as_ref(),
            Place::Node(node) => self.cluster.nodes.get(node).and_then(Option::as_ref),
        }
    }

    /// Notes when a link was cut.
    fn is_cut(&mut self, node: usize) {
        if let (Some(link), Some(cut)) = (self.cluster.links.get(node), self.cuts.get_mut(node))
            && links::is_cut(link)
        {
            cut.get_or_insert_with(machine_micros);
        }
    }

    fn mend_link(&mut self, node: usize, fault: Fault, random: &mut Random) {
        let ends_cut = matches!(fault, Fault::CutUp | Fault::CutDown | Fault::CutBoth);
        if ends_cut && let Some(from_us) = self.cuts.get_mut(node).and_then(Option::take) {
            self.tally.silences.push(Silence { node: Some(node), from_us, to_us: machine_micros() });
        }
        self.tally.note(&format!("{} of the link of node {node} ends", fault.name()));
        self.cluster.links.get(node).into_iter().for_each(|link| links::end(link, fault, random));
    }

    /// Ends all faults: everything runs and reaches everything.
    ///
    /// # Errors
    /// A process does not come back.
    pub async fn calm(&mut self) -> Result<(), ClusterError> {
        self.tally.note("calm");
        self.mends.clear();
        for node in 0..NODES {
            self.mend_link(node, Fault::CutBoth, &mut Random::new(0, 0));
        }
        self.cluster.links.iter().for_each(links::clear);
        let places = || std::iter::once(Place::Controller).chain((0..NODES).map(Place::Node));
        for place in places() {
            self.go_on(place);
            self.start(place)?;
        }
        let ended = async {
            while places().any(|place| self.state(place).mode == Mode::Ending) {
                self.watch_ends()?;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        };
        match tokio::time::timeout(PATIENCE, ended).await {
            Ok(ended) => ended?,
            Err(_) => {
                return Err(ClusterError::TooLate {
                    what: "a process that was asked to end".to_owned(),
                    log: self.cluster.tail("controller"),
                });
            }
        }
        self.cluster.status().await.map(drop)
    }

    /// `kill -9` of the controller, which comes back at once.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn crash_controller(&mut self) -> Result<(), ClusterError> {
        self.kill_controller();
        self.controller.mode = Mode::Away(machine_micros());
        self.start_controller().await
    }

    /// Kills it, and notes when: from then on what warms up is cold.
    fn kill_controller(&mut self) {
        self.cluster.kill_controller();
        self.tally.crashes.push(machine_micros());
    }
}
