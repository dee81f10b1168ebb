//! The figures as JSON: every row with median, quartiles and range, the marks, and the machine.

use serde_json::{Value, json};

use super::machine;
use super::row::{Mark, Row};
use super::samples::Samples;

/// The whole run.
pub fn report(rows: &[Row]) -> Value {
    let machine: serde_json::Map<String, Value> =
        machine::facts().into_iter().map(|(name, value)| (name.to_owned(), Value::String(value))).collect();
    json!({ "machine": machine, "rows": rows.iter().map(row).collect::<Vec<_>>() })
}

fn row(row: &Row) -> Value {
    let others = row.others.iter().map(|other| {
        let ratio = row.ours.over(&other.figure);
        json!({
            "name": other.name,
            "kind": other.kind.name(),
            "figure": samples(&other.figure),
            "ours_divided_by_it": samples(&ratio),
            "mark": mark(other.mark, ratio.median()),
        })
    });
    json!({
        "case": row.case,
        "unit": row.unit.0,
        "ours": samples(&row.ours),
        "mark": mark(row.mark, row.ours.median()),
        "beside": others.collect::<Vec<_>>(),
        "note": row.note,
    })
}

fn samples(samples: &Samples) -> Value {
    let ((q1, q3), (min, max)) = (samples.quartiles(), samples.range());
    json!({ "median": samples.median(), "q1": q1, "q3": q3, "min": min, "max": max, "rounds": samples.rounds() })
}

fn mark(mark: Option<Mark>, value: f64) -> Value {
    match mark {
        None => Value::Null,
        Some(mark) => {
            let (least, most) = match mark {
                Mark::AtMost(most) => (None, Some(most)),
                Mark::AtLeast(least) => (Some(least), None),
                Mark::Within(least, most) => (Some(least), Some(most)),
            };
            json!({ "at_least": least, "at_most": most, "met": mark.met(value) })
        }
    }
}
