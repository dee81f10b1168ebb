//! One scenario of the comparison: who offers what, what happens, and what is worth measuring.

use tidegate_core::units::{Span, Time};

use super::caps::Caps;
use tidegate_sim::load::Load;

/// The seed of all runs.
pub const SEED: u64 = 1;
/// One-way delay between node and centre.
pub const DELAY: (Span, Span) = (Span(500), Span(1_500));

/// What happens to the centre.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The cap is now this many RU/s.
    Cap(u64),
    /// The centre is gone.
    Away,
    /// It starts again.
    Back,
}

/// Load comes to nodes that had less before.
#[derive(Clone, Copy, Debug)]
pub struct Shift {
    /// When.
    pub at: Time,
    /// The first and last of the nodes.
    pub nodes: (usize, usize),
    /// What they should get together, in RU/s.
    pub fair: u64,
    /// When it ends.
    pub until: Time,
}

/// A stretch of the run whose use is of interest.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// Heads its column.
    pub title: &'static str,
    /// Start.
    pub from: Time,
    /// End.
    pub to: Time,
}

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Names the figure's file and `--only`.
    pub name: &'static str,
    /// Heads its section.
    pub title: &'static str,
    /// What is offered, in one sentence.
    pub setup: &'static str,
    /// Number of nodes.
    pub nodes: usize,
    /// RU/s over time.
    pub caps: Caps,
    /// Length.
    pub end: Time,
    /// Loads.
    pub loads: Vec<Load>,
    /// More is offered than there is, all the time.
    pub saturated: bool,
    /// The group was never used before.
    pub new_group: bool,
    /// From here on measures are taken a second time, without the start.
    pub settled: Option<Time>,
    /// Labels of the loads whose waits matter; empty for none.
    pub waits: &'static [&'static str],
    /// Label of the load whose nodes should get the same.
    pub equal: Option<&'static str>,
    /// Shifts of load.
    pub shifts: Vec<Shift>,
    /// Stretches of interest.
    pub stretches: Vec<Stretch>,
    /// What happens to the centre, by time.
    pub changes: Vec<(Time, Change)>,
    /// Width of a bin in the figure.
    pub bin: Span,
    /// One-way delay between node and centre.
    pub delay: (Span, Span),
}

impl Scenario {
    /// The group's burst: one second of its largest cap, in RU.
    pub fn burst(&self) -> u64 {
        self.caps.largest()
    }

    /// The shifts from a moment on.
    pub fn shifts_after(&self, from: Time) -> Vec<Shift> {
        self.shifts.iter().copied().filter(|shift| shift.at >= from).collect()
    }

    /// Labels of the loads, each once, in their order.
    pub fn labels(&self) -> Vec<&str> {
        let mut labels = Vec::new();
        for load in &self.loads {
            if !labels.contains(&load.label.as_str()) {
                labels.push(load.label.as_str());
            }
        }
        labels
    }

    /// Indices of the loads with a label.
    pub fn loads_of(&self, label: &str) -> Vec<usize> {
        let with_label = self.loads.iter().enumerate().filter(|(_, load)| load.label == label);
        with_label.map(|(index, _)| index).collect()
    }
}
