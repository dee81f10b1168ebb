//! The processes of a run and what is done to them: faults begin at their time, and end or are mended later.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::fault::{Event, Fault};
use super::tally::{Silence, Stop, Tally};
use super::{NODES, Settings, TTL_US, links, works};
use crate::process::child::Process;
use crate::process::cluster::{Cluster, ended_as_asked};
use crate::process::error::{ClusterError, PATIENCE, io};
use crate::process::log::machine_micros;
use crate::sim::random::Random;

/// Short stops, in milliseconds: less than a lease.
const SHORT_MS: (u64, u64) = (20, 300);
/// Long stops: more than a lease.
const LONG_MS: (u64, u64) = (TTL_US * 12 / 10_000, TTL_US * 3 / 1_000);
/// How long a node that wakes up late stays cut off, so that all it has is what it had before.
const DARK_MS: (u64, u64) = (100, 1_200);
/// How long a killed process stays away, when it does.
const AWAY_MS: (u64, u64) = (100, 2_500);
/// How long the controller may take to show that it is up before it is asked to end.
const ANSWER: Duration = Duration::from_secs(2);

/// What a process does at the moment.
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
        Ok(Self {
            cluster: Cluster::new(&settings.folder, &settings.load_node, NODES, works()).await?,
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

    /// Lets a fault happen; one that finds nothing to happen to is not counted.
    ///
    /// # Errors
    /// A process does not obey.
    pub async fn suffer(&mut self, event: Event) -> Result<(), ClusterError> {
        let (fault, mut random) = (event.fault, event.details);
        let node = random.below(NODES);
        match fault {
            Fault::KillNode => {
                self.kill(fault, self.first(node, |mode| !matches!(mode, Mode::Away(_))), &mut random)
            }
            Fault::KillController if !matches!(self.controller.mode, Mode::Away(_)) => {
                self.kill(fault, Some(Place::Controller), &mut random);
            }
            Fault::StopNode => {
                if let Some(place) = self.first(node, |mode| mode == Mode::Up) {
                    self.stop(fault, place, &mut random).await?;
                }
            }
            Fault::StopController if self.controller.mode == Mode::Up => {
                self.stop(fault, Place::Controller, &mut random).await?;
            }
            Fault::RestartNode => {
                if let Some(place) = self.first(node, |mode| mode == Mode::Up) {
                    self.terminate(fault, place);
                }
            }
            Fault::RestartController if self.controller.mode == Mode::Up => {
                // Before it answers it does not heed the signal, and ends as if killed.
                if matches!(tokio::time::timeout(ANSWER, self.cluster.status()).await, Ok(Ok(_))) {
                    self.terminate(fault, Place::Controller);
                }
            }
            Fault::KillController | Fault::StopController | Fault::RestartController => {}
            _ => self.spoil(node, fault, &mut random),
        }
        Ok(())
    }

    /// The node, or the next one that is in such a mode.
    fn first(&self, node: usize, mode: impl Fn(Mode) -> bool) -> Option<Place> {
        let order = (node..NODES).chain(0..node);
        let is = |node: &usize| self.nodes.get(*node).is_some_and(|state| mode(state.mode));
        order.into_iter().find(is).map(Place::Node)
    }

    fn kill(&mut self, fault: Fault, place: Option<Place>, random: &mut Random) {
        let Some(place) = place else {
            return;
        };
        let text = format!("{place:?}, {:?}", self.state(place).mode);
        self.tally.count(fault, &text);
        self.ends_stop(place);
        match place {
            Place::Controller => self.cluster.kill_controller(),
            Place::Node(node) => self.cluster.kill_node(node),
        }
        self.state(place).mode = Mode::Away(machine_micros());
        let away = if random.one_in(3) { random.between(AWAY_MS.0, AWAY_MS.1) } else { 0 };
        self.later(away, Mend::Start(place));
    }

    async fn stop(&mut self, fault: Fault, place: Place, random: &mut Random) -> Result<(), ClusterError> {
        let process = match place {
            Place::Controller => self.cluster.controller.as_mut(),
            Place::Node(node) => self.cluster.nodes.get_mut(node).and_then(Option::as_mut),
        };
        let Some(process) = process else {
            return Ok(());
        };
        if !process.stop().await? {
            // It has ended by itself, which the next look finds.
            return Ok(());
        }
        let long = random.one_in(2);
        let (low, high) = if long { LONG_MS } else { SHORT_MS };
        let length = random.between(low, high);
        self.tally.count(fault, &format!("{place:?} for {length} ms"));
        self.state(place).mode = Mode::Stopped(machine_micros());
        let starts = self.state(place).starts;
        self.later(length, Mend::Continue(place, starts));
        if let Place::Node(node) = place
            && long
            && random.one_in(2)
            && let Some(link) = self.cluster.links.get(node)
            && links::begin(link, Fault::CutBoth, random).is_some()
        {
            self.is_cut(node);
            let dark = random.between(DARK_MS.0, DARK_MS.1);
            self.tally.note(&format!("node {node} is cut off until {dark} ms after it goes on"));
            self.later(length + dark, Mend::Link(node, Fault::CutBoth, random.clone()));
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

    fn terminate(&mut self, fault: Fault, place: Place) {
        self.tally.count(fault, &format!("{place:?}"));
        self.process(place).into_iter().for_each(Process::terminate);
        self.state(place).mode = Mode::Ending;
    }

    fn spoil(&mut self, node: usize, fault: Fault, random: &mut Random) {
        let Some(length) = self.cluster.links.get(node).and_then(|link| links::begin(link, fault, random))
        else {
            return;
        };
        self.is_cut(node);
        self.tally.count(fault, &format!("link of node {node} for {length} ms"));
        if length > 0 {
            self.later(length, Mend::Link(node, fault, random.clone()));
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
        self.cluster.kill_controller();
        self.controller.mode = Mode::Away(machine_micros());
        self.start_controller().await
    }
}
