//! Facts 1 and 2: bursts at the boundaries of windows and cells.

use tidegate_core::policy::fixed_window::FixedWindow;
use tidegate_core::policy::gcra::Gcra;
use tidegate_core::policy::sliding_log::SlidingLog;
use tidegate_core::policy::sub_windows::SubWindows;
use tidegate_core::policy::two_windows::TwoWindows;
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::chart::{Chart, Series, Style};
use super::table::Table;
use super::trace::{Decide, admitted, between, decide, every, most_within, sampled};
use super::{LabError, Section};

const MINUTE: Span = Span::secs(60);
const LIMIT: Ru = Ru::whole(100);

/// A second of the clock of the articles.
const fn at(second: u64) -> Time {
    Time(second * 1_000_000)
}

/// Every policy at a hundred calls a minute.
fn contestants() -> Result<Vec<(&'static str, Decide)>, LabError> {
    Ok(vec![
        ("fixed window", decide(FixedWindow::new(LIMIT, MINUTE)?)),
        ("6 sub-windows of 10 s", decide(SubWindows::new(LIMIT, MINUTE, 6)?)),
        ("two windows", decide(TwoWindows::new(LIMIT, MINUTE)?)),
        ("log", decide(SlidingLog::new(LIMIT, MINUTE, 100)?)),
        ("token bucket or GCRA, burst 100", decide(Gcra::new(Rate::whole(100).scale(1, 60), LIMIT)?)),
    ])
}

/// What each admits of the calls, counted in two parts and in the worst windows.
fn compare(
    calls: &[Time],
    [first, second]: [(&str, Time, Time); 2],
    window: (&str, Span),
    title: &str,
) -> Result<(Table, Chart), LabError> {
    let mut table = Table::new(["policy", first.0, second.0, window.0, "most in a minute"]);
    let mut series = Vec::new();
    let end = calls.last().copied().unwrap_or_default().after(Span::secs(1));
    for (name, mut decide) in contestants()? {
        let admitted = admitted(&mut decide, calls.iter().copied());
        let counts = [
            between(&admitted, first.1, first.2),
            between(&admitted, second.1, second.2),
            most_within(window.1, &admitted),
            most_within(MINUTE, &admitted),
        ];
        table.row(std::iter::once(name.to_owned()).chain(counts.map(|count| count.to_string())));
        series.push(Series {
            name: name.to_owned(),
            style: Style::Line,
            points: sampled(&admitted, Span::millis(500), end),
        });
    }
    let chart = Chart {
        title: title.to_owned(),
        across: "seconds",
        up: "calls admitted, in all",
        series,
        limit: Some((100.0, "100".to_owned())),
    };
    Ok((table, chart))
}

/// Fact 1.
///
/// # Errors
/// A policy cannot be set so.
pub fn fixed_window() -> Result<Section, LabError> {
    let calls: Vec<Time> = every(Span::millis(100), at(50), 200).collect();
    let parts = [("0:50 to 1:00", at(50), at(60)), ("1:00 to 1:10", at(60), at(70))];
    let (table, chart) = compare(
        &calls,
        parts,
        ("most in 20 s", Span::secs(20)),
        "200 calls around a boundary, 100 a minute",
    )?;
    Ok(Section {
        name: "fixed-window-boundary",
        title: "Fact 1: a fixed window admits twice its limit around a boundary".to_owned(),
        text: vec![
            "100 calls a minute are allowed. 200 come evenly from 0:50 to 1:10. A new fixed window begins at 1:00, so that \
             all of them are admitted within 20 s; six sub-windows of 10 s still count the first hundred, and refuse the \
             second."
                .to_owned(),
        ],
        tables: vec![table],
        pictures: vec![chart.svg()],
    })
}

/// Fact 2.
///
/// # Errors
/// A policy cannot be set so.
pub fn sub_windows() -> Result<Section, LabError> {
    let calls: Vec<Time> = every(Span::millis(50), at(5), 20 * 65).collect();
    let parts = [("0:05 to 0:10", at(5), at(10)), ("1:00 to 1:05", at(60), at(65))];
    let (table, chart) = compare(
        &calls,
        parts,
        ("most in 10 s", Span::secs(10)),
        "20 calls a second from 0:05, 100 a minute",
    )?;
    Ok(Section {
        name: "sub-window-boundary",
        title: "Fact 2: sub-windows admit twice their limit, a cell short of a window apart".to_owned(),
        text: vec![
            "20 calls a second come from 0:05 on. Six sub-windows of 10 s admit 100 by 0:10, nothing more until the \
             cell of these leaves as a whole at 1:00, and then 100 at once: 200 within the minute from 0:05. The log \
             never has more than 100 in a minute."
                .to_owned(),
        ],
        tables: vec![table],
        pictures: vec![chart.svg()],
    })
}
