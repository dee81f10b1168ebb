//! The table of a scenario, as Markdown: a row per system, a column per measure that means something in it.

use std::fmt::Write as _;

use tidegate_core::units::Span;

use super::measures::{Measures, Use};
use super::recovery;
use super::scenario::Scenario;
use super::system::System;

/// A heading, and how a cell is written.
type Column = (&'static str, Cell);
type Cell = Box<dyn Fn(&Measures) -> String>;

/// The table.
pub fn table(scenario: &Scenario, rows: &[(System, Measures)]) -> String {
    let columns = columns(scenario);
    let mut text = String::from("| |");
    for (heading, _) in &columns {
        let _ = write!(text, " {heading} |");
    }
    text.push_str("\n|---|");
    text.push_str(&"--:|".repeat(columns.len()));
    text.push('\n');
    for (system, measures) in rows {
        let _ = write!(text, "| {} |", system.name());
        for (_, cell) in &columns {
            let _ = write!(text, " {} |", cell(measures));
        }
        text.push('\n');
    }
    text
}

/// One table of all scenarios: a row each, a column per system with what it used (or served) and its worst window.
pub fn summary(all: &[(Scenario, Vec<(System, Measures)>)]) -> String {
    let mut text = String::from("| |");
    for system in System::ALL {
        let _ = write!(text, " {} |", system.name());
    }
    text.push_str("\n|---|");
    text.push_str(&"--:|".repeat(System::ALL.len()));
    text.push('\n');
    for (scenario, rows) in all {
        let _ = write!(text, "| [{}](figures/comparison-{}.svg) |", scenario.title, scenario.name);
        for (_, measures) in rows {
            let used = if scenario.saturated { measures.whole.used } else { measures.served };
            let _ = write!(text, " {used:.3}, {:.2} B |", measures.whole.worst);
        }
        text.push('\n');
    }
    text
}

fn columns(scenario: &Scenario) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    let mut add = |heading, cell: Cell| columns.push((heading, cell));
    if scenario.saturated {
        add("used", both(|part| format!("{:.3}", part.used)));
    } else {
        add("served", Box::new(|measures| format!("{:.3}", measures.served)));
    }
    add("worst window, B", both(|part| format!("{:.2}", part.worst)));
    add("worst 1 s", both(|part| format!("{:.2}", first(part))));
    add("worst 10 s", both(|part| format!("{:.2}", second(part))));
    for (index, stretch) in scenario.stretches.iter().enumerate() {
        let cell = move |measures: &Measures| {
            measures.stretches.get(index).map_or_else(String::new, |used| format!("{used:.3}"))
        };
        add(stretch.title, Box::new(cell));
    }
    if !scenario.shifts.is_empty() {
        let longest = recovery::shortest(&scenario.shifts);
        add("recovered, s", Box::new(move |measures| recovered(measures, longest)));
    }
    if scenario.equal.is_some() {
        add("Jain", Box::new(|measures| measures.jain.map_or_else(String::new, |jain| format!("{jain:.3}"))));
        let least =
            |measures: &Measures| measures.least.map_or_else(String::new, |least| format!("{least:.2}"));
        add("least", Box::new(least));
    }
    if !scenario.waits.is_empty() {
        let waits = |measures: &Measures| {
            measures.waits.map_or_else(String::new, |(half, most)| format!("{} / {}", wait(half), wait(most)))
        };
        add("wait p50 / p99", Box::new(waits));
        let refused = |share: f64| format!("{:.1} %", share * 100.0);
        add("refused", Box::new(move |measures| measures.refused.map_or_else(String::new, refused)));
    }
    add("messages", Box::new(|measures| format!("{:.2}", measures.messages)));
    columns
}

/// A measure of the whole run and, where there is one, of what follows the start.
fn both(cell: impl Fn(&Use) -> String + 'static) -> Cell {
    Box::new(move |measures| match &measures.settled {
        Some(settled) => format!("{} · {}", cell(&measures.whole), cell(settled)),
        None => cell(&measures.whole),
    })
}

fn first(part: &Use) -> f64 {
    let [one, _] = part.windows;
    one
}

fn second(part: &Use) -> f64 {
    let [_, ten] = part.windows;
    ten
}

fn recovered(measures: &Measures, longest: Span) -> String {
    let one = |found: Option<f64>| {
        found.map_or_else(|| format!("> {:.1}", seconds(longest)), |found| format!("{found:.1}"))
    };
    measures.recovery.map_or_else(String::new, |(half, worst)| format!("{} / {}", one(half), one(worst)))
}

fn wait(span: Span) -> String {
    let whole = seconds(span);
    match span.0 {
        0..1_000 => format!("{} µs", span.0),
        1_000..1_000_000 => format!("{:.1} ms", whole * 1e3),
        _ => format!("{:.1} s", whole),
    }
}

fn seconds(span: Span) -> f64 {
    super::measures::float(u128::from(span.0)) / 1e6
}
