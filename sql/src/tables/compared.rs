//! What a group would have met under the settings in force, beside proposed ones.

use tidegate_proto::v1;

use super::rows::{Row, count, optional, seconds, text};
use crate::answer::{Column, Kind, Value};

/// The columns.
const COLUMNS: [(&str, Kind); 12] = [
    ("settings", Kind::Text),
    ("operations_come", Kind::Text),
    ("ru_per_sec", Kind::Text),
    ("burst", Kind::Text),
    ("policy", Kind::Text),
    ("quota", Kind::Text),
    ("admitted_ru", Kind::Float),
    ("throttled_ru", Kind::Float),
    ("throttled_percent", Kind::Float),
    ("throttled_time_percent", Kind::Float),
    ("p99_wait_seconds", Kind::Float),
    ("use_percent", Kind::Float),
];
/// Millionths in a hundredth.
const PER_CENT: f64 = 1e4;

/// Columns and rows of a comparison; no rows while there is none.
pub(crate) fn compared(comparison: Option<&v1::WhatIfReply>) -> (Vec<Column>, Vec<Row>) {
    let columns = COLUMNS.map(|(name, kind)| Column { name: name.to_owned(), kind }).to_vec();
    let both = comparison.map(|both| [("live", &both.current), ("proposed", &both.proposed)]);
    let rows = both.into_iter().flatten().flat_map(|(settings, outcome)| match outcome {
        Some(outcome) => outcome_rows(settings, outcome).to_vec(),
        None => vec![unlimited(settings)],
    });
    (columns, rows.collect())
}

/// As if operations had come evenly, and all at once.
fn outcome_rows(settings: &str, outcome: &v1::WhatIfOutcome) -> [Row; 2] {
    [("even", &outcome.even), ("at once", &outcome.at_once)].map(|(come, figures)| {
        let figures = figures.clone().unwrap_or_default();
        let amount = |ru: &str| ru.parse().map_or(Value::Null, Value::Float);
        let percent = |ppm: u64| Value::Float(count(ppm) / PER_CENT);
        vec![
            text(settings),
            text(come),
            text(&outcome.ru_per_sec),
            text(&outcome.burst),
            text(&outcome.policy),
            optional(&outcome.quota),
            amount(&figures.admitted_ru),
            amount(&figures.throttled_ru),
            percent(figures.throttled_ppm),
            percent(figures.throttled_time_ppm),
            seconds(figures.p99_wait_us),
            percent(figures.use_ppm),
        ]
    })
}

/// Settings that limit nothing.
fn unlimited(settings: &str) -> Row {
    let mut row = vec![text(settings), Value::Null, text("UNLIMITED")];
    row.resize(COLUMNS.len(), Value::Null);
    row
}
