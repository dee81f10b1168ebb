//! Events of the processes, on machine time: kills, stops, and times in which a node could get no lease.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;

use crate::process::log::machine_micros;

/// A node that did not run, from when it stood still until it was let go on or killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The node.
    pub node: usize,
    /// Its threads stand still since.
    pub from_us: u64,
    /// Until then.
    pub to_us: u64,
}

/// A time in which no request of a node was answered. The node asked before it for all that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The node; `None` for all.
    pub node: Option<usize>,
    /// No request sent after this was answered.
    pub from_us: u64,
    /// Before this.
    pub to_us: u64,
}

/// Everything that happened.
#[derive(Debug)]
pub struct Tally {
    file: File,
    started_us: u64,
    /// Faults by name.
    pub faults: BTreeMap<&'static str, u64>,
    kills: u64,
    /// Controllers and nodes that ended as they were asked.
    pub clean_ends: u64,
    /// Nodes standing still.
    pub stops: Vec<Stop>,
    /// Stops that someone else on the machine has ended, of which nothing is judged.
    pub broken_stops: u64,
    /// Nodes without an answer.
    pub silences: Vec<Silence>,
    /// When the only controller was killed.
    pub crashes: Vec<u64>,
}

impl Tally {
    /// An empty tally; each event is also written to `file`.
    pub fn new(file: File) -> Self {
        Self {
            file,
            started_us: machine_micros(),
            faults: BTreeMap::new(),
            kills: 0,
            clean_ends: 0,
            stops: Vec::new(),
            broken_stops: 0,
            silences: Vec::new(),
            crashes: Vec::new(),
        }
    }

    /// Microseconds since the run began.
    pub fn now_us(&self) -> u64 {
        machine_micros() - self.started_us
    }

    /// Writes a line down, with machine time.
    pub fn note(&mut self, text: &str) {
        // The figures do not hang on it.
        let _ = writeln!(self.file, "{} {text}", machine_micros());
    }

    /// A fault of this name has happened, of which so many processes died.
    pub fn count(&mut self, fault: &'static str, kills: u64, text: &str) {
        *self.faults.entry(fault).or_default() += 1;
        self.kills += kills;
        self.note(&format!("{fault}: {text}"));
    }

    /// How many faults have happened.
    pub fn happened(&self) -> u64 {
        self.faults.values().sum()
    }

    /// How many processes were killed.
    pub fn kills(&self) -> u64 {
        self.kills
    }
}
