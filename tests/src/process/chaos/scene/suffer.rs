//! The effect of each fault on the processes and links of a scene.

use std::time::Duration;

use super::{Mend, Mode, Place, Scene};
use crate::process::chaos::fault::{Event, Fault};
use crate::process::chaos::{NODES, TTL_US, links};
use crate::process::child::Process;
use crate::process::error::ClusterError;
use crate::process::log::machine_micros;
use tidegate_sim::random::Random;

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

impl Scene {
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
        self.tally.count(fault.name(), u64::from(fault.kills()), &text);
        self.ends_stop(place);
        match place {
            Place::Controller => self.kill_controller(),
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
        self.tally.count(fault.name(), u64::from(fault.kills()), &format!("{place:?} for {length} ms"));
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

    fn terminate(&mut self, fault: Fault, place: Place) {
        self.tally.count(fault.name(), u64::from(fault.kills()), &format!("{place:?}"));
        self.process(place).into_iter().for_each(Process::terminate);
        self.state(place).mode = Mode::Ending;
    }

    fn spoil(&mut self, node: usize, fault: Fault, random: &mut Random) {
        let Some(length) = self.cluster.links.get(node).and_then(|link| links::begin(link, fault, random))
        else {
            return;
        };
        self.is_cut(node);
        self.tally.count(
            fault.name(),
            u64::from(fault.kills()),
            &format!("link of node {node} for {length} ms"),
        );
        if length > 0 {
            self.later(length, Mend::Link(node, fault, random.clone()));
        }
    }
}
