//! Puts a system under the load of a scenario, and returns what it did.

use tidegate_core::group::{Fallback, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Span};

use super::scenario::{Change, SEED, Scenario};
use crate::rivals::Rival;
use crate::rivals::arena::Arena;
use crate::rivals::cockroach::Cockroach;
use crate::rivals::doorman::Doorman;
use crate::rivals::ideal::Ideal;
use crate::rivals::pd::Pd;
use tidegate_sim::disk::Death;
use tidegate_sim::log::Log;
use tidegate_sim::random::Random;
use tidegate_sim::world::World;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// One bucket for all, without delay.
    Ideal,
    /// The machines that ship.
    Tidegate,
    /// PD's resource manager, which TiDB uses.
    Pd,
    /// CockroachDB's tenant cost control.
    Cockroach,
    /// Doorman.
    Doorman,
}

/// What a system did.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Every operation.
    pub log: Log,
    /// Messages to the centre per node and second.
    pub messages: f64,
}

impl System {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 5] = [Self::Ideal, Self::Tidegate, Self::Pd, Self::Cockroach, Self::Doorman];

    /// For tables and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ideal => "ideal",
            Self::Tidegate => "tidegate",
            Self::Pd => "PD (TiDB)",
            Self::Cockroach => "CockroachDB",
            Self::Doorman => "Doorman",
        }
    }

    /// Runs a scenario.
    ///
    /// # Errors
    /// The world refused a definition.
    pub fn run(self, scenario: &Scenario) -> Result<Run, String> {
        let rate = super::measures::float(u128::from(first(scenario)));
        let nodes = scenario.nodes;
        match self {
            Self::Tidegate => tidegate(scenario, SEED, None),
            Self::Ideal => Ok(rival(scenario, SEED, Ideal::new(rate))),
            Self::Pd => Ok(rival(scenario, SEED, Pd::new(rate, scenario.new_group, &ticks(SEED, nodes)))),
            Self::Cockroach => {
                let seed = (!scenario.new_group).then_some(SEED);
                Ok(rival(scenario, SEED, Cockroach::new(rate, nodes, seed)))
            }
            Self::Doorman => Ok(rival(scenario, SEED, Doorman::new(rate, nodes))),
        }
    }
}

/// When the main loops of clients look first: processes do not start at the same fraction of a second.
pub(crate) fn ticks(seed: u64, nodes: usize) -> Vec<Span> {
    let mut random = Random::new(seed, 2);
    (0..nodes).map(|_| Span(random.between(0, 999_999))).collect()
}

/// The RU/s that the cap begins with.
fn first(scenario: &Scenario) -> u64 {
    scenario.caps.steps().first().map_or(0, |(_, rate)| *rate)
}

/// Runs a model.
pub(crate) fn rival<R: Rival>(scenario: &Scenario, seed: u64, rival: R) -> Run {
    let mut arena = Arena::new(rival, seed, scenario.nodes, scenario.delay);
    for load in &scenario.loads {
        arena.add_load(load.clone());
    }
    for (at, change) in &scenario.changes {
        arena.run(*at);
        match change {
            Change::Cap(rate) => arena.set_cap(super::measures::float(u128::from(*rate))),
            Change::Away => arena.stop_centre(),
            Change::Back => arena.start_centre(),
        }
    }
    arena.run(scenario.end);
    let seconds = super::measures::float(u128::from(scenario.end.0)) / 1e6;
    let nodes = super::measures::float(scenario.nodes as u128);
    let messages = super::measures::float(u128::from(arena.messages())) / (nodes * seconds);
    Run { log: arena.log, messages }
}

/// Runs the machines that ship; with a fallback, so many RU/s for all nodes together without leases.
pub(crate) fn tidegate(scenario: &Scenario, seed: u64, fallback: Option<Rate>) -> Result<Run, String> {
    let group = GroupId(2);
    let spec = |rate: u64| {
        let capped = GroupSpec::capped(Rate::whole(i64::try_from(rate).unwrap_or(i64::MAX)));
        GroupSpec {
            fallback_total: fallback,
            fallback: fallback.map_or(Fallback::Stop, Fallback::Rate),
            ..capped
        }
    };
    let mut world = World::new(seed, scenario.nodes, scenario.delay)?;
    world.log = Some(Log::default());
    world.put_group(group, spec(first(scenario)))?;
    for load in &scenario.loads {
        world.add_load(load.clone());
    }
    for (at, change) in &scenario.changes {
        world.run(*at);
        match change {
            Change::Cap(rate) => world.put_group(group, spec(*rate))?,
            Change::Away => world.crash_controller(Death::Killed),
            Change::Back => world.start_controller(),
        }
    }
    world.run(scenario.end);
    let messages = super::measures::float(u128::from(world.messages_per_node_second())) / 1e3;
    Ok(Run { log: world.log.take().unwrap_or_default(), messages })
}
