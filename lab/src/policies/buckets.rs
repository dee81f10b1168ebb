//! Fact 6: what a token bucket and a leaky bucket let out of 60 calls that wait.

use tidegate_core::policy::paced::{Delay, Grain, Paced, PacedSettings};
use tidegate_core::policy::token_bucket::TokenBucket;
use tidegate_core::policy::{Limiter, Verdict};
use tidegate_core::units::{Rate, Ru, Time};

use super::chart::{Chart, Series, Style};
use super::table::Table;
use super::trace::{between, cumulative};
use super::{LabError, Section};

/// Calls that wait together.
const WAITING: u32 = 60;

/// Calls that a bucket of 100 a minute admits at once after 30 s of nothing. A call costs 3 RU, because a hundred of them
/// in a minute are then 5 RU/s, without a remainder.
fn refilled() -> Result<(u32, u32), LabError> {
    let cost = Ru::whole(3);
    let mut bucket = Limiter::new(TokenBucket::new(Rate::whole(5), Ru::whole(300))?);
    let mut admitted = |now: Time| {
        let mut count = 0;
        while bucket.try_acquire(now, cost).is_admitted() {
            count += 1;
        }
        count
    };
    Ok((admitted(Time(0)), admitted(Time(30_000_000))))
}

/// When each of the calls starts that come together.
fn starts(mut decide: impl FnMut(Time, Ru) -> Verdict) -> Vec<Time> {
    let start = |_| match decide(Time(0), Ru::whole(1)) {
        Verdict::Admit => Some(Time(0)),
        Verdict::AdmitAt(start) => Some(start),
        _ => None,
    };
    (0..WAITING).filter_map(start).collect()
}

/// Fact 6.
///
/// # Errors
/// A policy cannot be set so.
pub fn release() -> Result<Section, LabError> {
    let (full, refilled) = refilled()?;
    let mut idle = Table::new(["token bucket, 100 a minute", "admitted at once"]);
    idle.row(["full".to_owned(), full.to_string()]);
    idle.row(["30 s after it was emptied".to_owned(), refilled.to_string()]);

    let second = Rate::whole(1);
    let mut bucket = Limiter::new(TokenBucket::new(second, Ru::whole(60))?);
    let queue = PacedSettings { rate: second, burst: Ru::whole(59), delay: Delay::All, grain: Grain::Exact };
    let mut paced = Limiter::new(Paced::new(queue)?);
    let all = [
        ("token bucket", starts(|now, cost| bucket.try_acquire(now, cost))),
        ("leaky bucket (paced)", starts(|now, cost| paced.try_acquire(now, cost))),
    ];
    let mut table = Table::new(["60 calls at 0 s, 60 a minute", "in the first second", "last starts at"]);
    let mut series = Vec::new();
    for (name, starts) in all {
        let last = starts.last().map_or(0, |last| last.0 / 1_000_000);
        let first = between(&starts, Time(0), Time(1_000_000));
        table.row([name.to_owned(), first.to_string(), format!("{last} s")]);
        series.push(Series { name: name.to_owned(), style: Style::Dots, points: cumulative(&starts) });
    }
    Ok(Section {
        name: "buckets",
        title: "Fact 6: a token bucket saves up, a leaky bucket smooths".to_owned(),
        text: vec![
            "A bucket of 100 calls a minute gains 50 in 30 idle seconds. Of 60 calls that wait, the token bucket lets \
             all out at once and the leaky bucket one a second."
                .to_owned(),
        ],
        tables: vec![idle, table],
        pictures: vec![Chart {
            title: "60 waiting calls, 60 a minute".to_owned(),
            across: "seconds",
            up: "calls started, in all",
            series,
            limit: None,
        }
        .svg()],
    })
}
