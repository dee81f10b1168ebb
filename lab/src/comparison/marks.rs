//! What tidegate should reach in the comparison, and whether it does.

use std::fmt::Write as _;

use tidegate_core::units::Span;

use super::measures::Measures;
use super::recovery;
use super::scenario::{Change, DELAY, Scenario};

/// Share of the cap used when more is offered.
const USED: f64 = 0.98;
/// Fairness among equal nodes.
const JAIN: f64 = 0.99;
/// Messages per node and second at saturation.
const MESSAGES: f64 = 5.0;
/// One renewal, three round trips, and the bin that recovery is measured in.
const RECOVERED: Span = Span(1_000_000 + 6 * DELAY.1.0 + 100_000);
/// A node with less than this part of an equal share does not progress.
const LEAST: f64 = 0.05;

/// One mark in one scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// What is asked.
    pub what: &'static str,
    /// What was measured, with its unit.
    pub measured: String,
    /// Whether that is enough.
    pub holds: bool,
}

/// The marks of a scenario.
pub fn marks(scenario: &Scenario, measures: &Measures) -> Vec<Mark> {
    let mut marks = Vec::new();
    let mut add = |what, measured: String, holds| marks.push(Mark { what, measured, holds });
    let away = scenario.changes.iter().any(|(_, change)| *change == Change::Away);
    if scenario.saturated && !away {
        add(
            "0.98 of rate and burst used",
            format!("{:.3}", measures.whole.used),
            measures.whole.used >= USED,
        );
    }
    let worst = measures.promised;
    add("no window over the bound", format!("{worst:.2} B"), worst <= 1.0);
    if let Some((_, worst)) = measures.recovery {
        let most = super::measures::float(u128::from(RECOVERED.0)) / 1e6;
        let shown = worst.map_or_else(
            || format!("longer than {}", recovery::shortest(&scenario.shifts)),
            |seconds| format!("{seconds:.1} s"),
        );
        let holds = worst.is_some_and(|seconds| seconds <= most + 1e-9);
        add("recovered within a renewal and three round trips", shown, holds);
    }
    if let Some(jain) = measures.jain {
        add("Jain index 0.99 among equals", format!("{jain:.3}"), jain >= JAIN);
    }
    if let Some(least) = measures.least {
        add("every node progresses", format!("{least:.2} of an equal share"), least >= LEAST);
    }
    if scenario.saturated {
        let messages = measures.messages;
        add("5 messages per node and second", format!("{messages:.2}"), messages <= MESSAGES);
    }
    marks
}

/// The marks of all scenarios, as a table: a row per mark, with the scenarios that miss it.
pub fn table(all: &[(Scenario, Vec<Mark>)]) -> String {
    let mut text = String::from("| mark | held in | missed in |\n|---|--:|---|\n");
    let mut whats: Vec<&str> = Vec::new();
    for mark in all.iter().flat_map(|(_, marks)| marks) {
        if !whats.contains(&mark.what) {
            whats.push(mark.what);
        }
    }
    for what in whats {
        let of = || {
            all.iter().flat_map(|(scenario, marks)| {
                marks.iter().filter(|mark| mark.what == what).map(move |mark| (scenario, mark))
            })
        };
        let missed: Vec<String> = of()
            .filter(|(_, mark)| !mark.holds)
            .map(|(scenario, mark)| format!("{} ({})", scenario.name, mark.measured))
            .collect();
        let missed = if missed.is_empty() { "–".to_owned() } else { missed.join(", ") };
        let held = of().filter(|(_, mark)| mark.holds).count();
        let _ = writeln!(text, "| {what} | {held} of {} | {missed} |", of().count());
    }
    text
}
