//! Fact 7: 10,000 items sent at 1,000 a second, by a sender or over a line that stands still for a while.

use tidegate_core::policy::Verdict;
use tidegate_core::policy::fixed_window::FixedWindow;
use tidegate_core::policy::paced::{Delay, Grain, Paced, PacedSettings};
use tidegate_core::policy::sliding_log::SlidingLog;
use tidegate_core::policy::token_bucket::TokenBucket;
use tidegate_core::policy::two_windows::TwoWindows;
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::chart::{Chart, Series, Style};
use super::table::{Table, thousands};
use super::trace::{Decide, decide, most_within, sampled, seconds};
use super::{LabError, Section};

const ITEMS: usize = 10_000;
const LIMIT: Ru = Ru::whole(1_000);
const SECOND: Span = Span::secs(1);
/// To send one item, alone.
const SENDING: Span = Span(50);
/// When nothing moves.
const STALLS: [(Time, Time); 2] = [(Time(4_000_000), Time(4_500_000)), (Time(6_000_000), Time(6_500_000))];

/// What stands still during the stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stalled {
    Nothing,
    /// The sender asks for nothing.
    Sender,
    /// The sender goes on, and what it sends arrives at the end of the stall.
    Line,
}

fn contestants() -> Result<Vec<(&'static str, Decide)>, LabError> {
    let queue = PacedSettings {
        rate: Rate::whole(1_000),
        burst: Ru::whole(1_000),
        delay: Delay::All,
        grain: Grain::Exact,
    };
    Ok(vec![
        ("fixed window", decide(FixedWindow::new(LIMIT, SECOND)?)),
        ("log", decide(SlidingLog::new(LIMIT, SECOND, 1_000)?)),
        ("two windows", decide(TwoWindows::new(LIMIT, SECOND)?)),
        ("token bucket, burst 50", decide(TokenBucket::new(Rate::whole(1_000), Ru::whole(50))?)),
        ("paced", decide(Paced::new(queue)?)),
    ])
}

/// The end of the stall that a moment is in, or the moment.
fn after_stall(at: Time) -> Time {
    STALLS.into_iter().find(|(begin, end)| (*begin..*end).contains(&at)).map_or(at, |(_, end)| end)
}

/// When each item arrives: the sender asks for one after another, waits as it is told, and takes a moment for each.
fn arrivals(decide: &mut Decide, stalled: Stalled) -> Vec<Time> {
    let (mut now, mut arrivals) = (Time(0), Vec::with_capacity(ITEMS));
    while arrivals.len() < ITEMS {
        if stalled == Stalled::Sender {
            now = after_stall(now);
        }
        now = match decide(now, Ru::whole(1)) {
            Verdict::Admit => now,
            // Its turn comes later: the sender waits for it.
            Verdict::AdmitAt(start) => start,
            Verdict::RetryAt(at) => {
                now = at;
                continue;
            }
            Verdict::AdmitLow | Verdict::Never => break,
        };
        now = now.after(SENDING);
        arrivals.push(if stalled == Stalled::Line { after_stall(now) } else { now });
    }
    arrivals
}

fn run(stalled: Stalled, title: &str) -> Result<(Table, Chart), LabError> {
    let mut table =
        Table::new([title, "most in 50 ms", "most in 0.5 s", "most in 1 s", "most in 1.1 s", "done at"]);
    let mut series = Vec::new();
    for (name, mut decide) in contestants()? {
        let arrivals = arrivals(&mut decide, stalled);
        let most = |window| thousands(most_within(window, &arrivals) as u64);
        let [burst, half, second, more] =
            [Span::millis(50), Span::millis(500), SECOND, Span::millis(1_100)].map(most);
        let done = format!("{:.2} s", arrivals.last().map_or(0.0, |last| seconds(*last)));
        table.row([name.to_owned(), burst, half, second, more, done]);
        let points = sampled(&arrivals, Span::millis(20), Time(11_000_000));
        series.push(Series { name: name.to_owned(), style: Style::Line, points });
    }
    let chart = Chart {
        title: title.to_owned(),
        across: "seconds",
        up: "items arrived, in all",
        series,
        limit: None,
    };
    Ok((table, chart))
}

/// Fact 7.
///
/// # Errors
/// A policy cannot be set so.
pub fn stalls() -> Result<Section, LabError> {
    let runs = [
        (Stalled::Nothing, "without a stall"),
        (Stalled::Sender, "the sender stalls"),
        (Stalled::Line, "the line stalls"),
    ];
    let (mut tables, mut pictures) = (Vec::new(), Vec::new());
    for (stalled, title) in runs {
        let (table, chart) = run(stalled, title)?;
        tables.push(table);
        pictures.push(chart.svg());
    }
    Ok(Section {
        name: "sending",
        title: "Fact 7: 10,000 items at 1,000 a second, with stalls at 4 s and 6 s".to_owned(),
        text: vec![
            "One sender asks for each item, waits as it is told, and takes 50 us to send. The stalls last half a \
             second. Fixed window and log emit the work of each second at once, within 50 ms; two windows do so once, \
             and then spread, as the token bucket and the queue do."
                .to_owned(),
            "After a stall of the sender the log has room for a whole second and takes it within 50 ms, so that it \
             catches up; it never has more than 1,000 in a second, and 2,000 in 1.1 s. Two windows catch up, too. The \
             token bucket has its burst and the queue nothing: what the rate would have yielded meanwhile is lost."
                .to_owned(),
            "What was admitted into a line that stands still arrives when it moves again, with any policy: limiters \
             bound what starts, not what arrives. The log then has two seconds' work in one, the token bucket and the \
             queue one and a half."
                .to_owned(),
        ],
        tables,
        pictures,
    })
}
