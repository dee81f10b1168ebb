//! The figures of a run.

use std::fmt;

use tidegate_core::units::{Ru, Span};

use super::definitions::Counts;
use super::tally::Tally;

/// The findings in a group's logs and in the ledger.
#[derive(Clone, Debug)]
pub struct GroupFigures {
    /// The group.
    pub name: &'static str,
    /// Operations admitted.
    pub operations: u64,
    /// Charged for certain by the logs, and at most: operations under way at a kill are in or out.
    pub charged: (Ru, Ru),
    /// RU in the ledger.
    pub ledger: Ru,
    /// Charged by nodes without a journal that were killed before they could report it.
    pub lost: Ru,
    /// The waits that half, and that 99 of 100, of the operations did not exceed.
    pub waits: (Span, Span),
}

/// A bound and what was measured against it.
#[derive(Clone, Debug)]
pub struct BoundFigures {
    /// The group, and what is counted.
    pub name: String,
    /// Admitted above rate * window, in the worst window.
    pub worst: Ru,
    /// The allowed excess: burst, overrun and the error of the clocks.
    pub allowed: Ru,
    /// The overrun in it.
    pub overrun: Ru,
}

/// Stops, and times without an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct StopFigures {
    /// Stops of nodes.
    pub stops: u64,
    /// Those longer than a lease.
    pub long: u64,
    /// Operations admitted before a stop and written down after it.
    pub across: u64,
    /// Times longer than a lease in which a node got no answer.
    pub silences: u64,
    /// Those that a stopped node woke up in.
    pub dark_wakes: u64,
}

/// Who led, with a cluster.
#[derive(Clone, Debug, Default)]
pub struct Leadership {
    /// How often another controller, or another start of it, led than before.
    pub changes: usize,
    /// The newest epoch.
    pub epoch: u64,
    /// How long it took from a fault until another controller spoke, where one did, in order of length.
    pub silent: Vec<Span>,
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// What happened.
    pub tally: Tally,
    /// Time it took.
    pub took: Span,
    /// Incarnations of nodes that were judged.
    pub incarnations: usize,
    /// The figures by group.
    pub groups: Vec<GroupFigures>,
    /// The figures by bound.
    pub bounds: Vec<BoundFigures>,
    /// Stops.
    pub stops: StopFigures,
    /// Who led; nothing without a cluster.
    pub leadership: Option<Leadership>,
    /// Changes of definitions.
    pub counts: Counts,
    /// Groups and bindings that were acknowledged and found at the end.
    pub there: (usize, usize),
    /// Alterations of the moving rate.
    pub alterations: usize,
    /// The violations in words; empty when there are none.
    pub violations: Vec<String>,
}

impl Outcome {
    /// Operations admitted in all groups.
    pub fn operations(&self) -> u64 {
        self.groups.iter().map(|group| group.operations).sum()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.0 / 1_000_000;
        let faults: Vec<String> =
            self.tally.faults.iter().map(|(fault, count)| format!("{count} {fault}")).collect();
        writeln!(f, "{} kills in {seconds} s; faults: {}", self.tally.kills(), faults.join(", "))?;
        writeln!(
            f,
            "{} operations of {} incarnations; {} processes ended as asked",
            self.operations(),
            self.incarnations,
            self.tally.clean_ends
        )?;
        for group in &self.groups {
            let GroupFigures { name, operations, charged, ledger, lost, waits } = group;
            let (sure, most) = charged;
            writeln!(
                f,
                "  {name}: {operations} operations, ledger {ledger}, logs {sure} to {most}, {lost} lost without a journal; \
                 half waited up to {}, 99 of 100 up to {}",
                waits.0, waits.1
            )?;
        }
        writeln!(f, "worst window above rate * window, and what may be:")?;
        for bound in &self.bounds {
            writeln!(
                f,
                "  {}: {} of {} (overrun {})",
                bound.name, bound.worst, bound.allowed, bound.overrun
            )?;
        }
        let StopFigures { stops, long, across, silences, dark_wakes } = self.stops;
        writeln!(
            f,
            "{stops} stops of nodes, {long} longer than a lease, {} ended by someone else; {across} operations \
             admitted before a stop and written after it",
            self.tally.broken_stops
        )?;
        writeln!(
            f,
            "{silences} times longer than a lease without an answer, {dark_wakes} of them with a stopped node waking up"
        )?;
        if let Some(Leadership { changes, epoch, silent }) = &self.leadership {
            let at =
                |permille: usize| silent.get(silent.len() * permille / 1_000).copied().unwrap_or_default();
            let longest = silent.last().copied().unwrap_or_default();
            writeln!(
                f,
                "{changes} changes of who leads, to epoch {epoch}; another one spoke within {} of half of the \
                 faults that brought it, {} of 9 of 10, and {longest} of all",
                at(500),
                at(900)
            )?;
        }
        let (groups, bindings) = self.there;
        let Counts { acknowledged, lost, compared } = self.counts;
        writeln!(
            f,
            "{acknowledged} changes acknowledged, {lost} without an answer, {} of them rates under load; \
             all compared {compared} times; at the end {groups} groups and {bindings} bindings",
            self.alterations
        )?;
        match self.violations.as_slice() {
            [] => write!(f, "no violation"),
            violations => write!(f, "VIOLATED:\n  {}", violations.join("\n  ")),
        }
    }
}
