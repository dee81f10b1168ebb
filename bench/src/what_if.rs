//! A what-if over 30 days of minutes of one group: settings in force, proposed ones, and the cheapest rate, as the
//! controller, the CLI and the lab ask for it.
//!
//! The group wants 500 RU/s in the mean, from 200 by night to 800 by day, and up to a fifth more or less. A cap of 620
//! RU/s is above that for half of the time, one of 480 for a third.

use tidegate_core::replay::{Budget, Record, RecordError, Sample, Settings, Shape, Windows, compare};
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::clock::Stopwatch;
use super::error::{BenchError, failed};
use super::row::{MS, Mark, Row};
use super::samples::Samples;
use super::setting::Setting;

/// The wait that 99 of 100 parts may have under the cheapest rate.
const BEARABLE: Span = Span::millis(100);
/// The most milliseconds that an answer may take.
const MOST_MS: f64 = 1_000.0;

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let setting = setting.with_rounds(5);
    let days = setting.size(30, 1);
    let record = minutes(days, 1).map_err(failed("record a month"))?;
    let large = minutes(days, 7).map_err(failed("record a month"))?;
    let mut cases = Vec::new();
    for rate in [480, 620] {
        for (burst, percent) in [("a tenth of a second", 10), ("1 s", 100), ("5 s", 500)] {
            for patience in [0, 50, 250, 1_000] {
                let name = format!("{rate} RU/s, a burst of {burst}, {patience} ms");
                cases.push((name, settings(Shape::TokenBucket, rate, percent, patience), &record));
            }
        }
        let name = format!("{rate} RU/s, operations of 7 RU, a burst of a tenth of a second, 0 ms");
        cases.push((name, settings(Shape::TokenBucket, rate, 10, 0), &large));
        for seconds in [1, 10, 60, 600, 3_600] {
            let (shape, patience) = (Shape::WarmUp { period: Span::secs(seconds), factor: 10 }, 250);
            cases.push((format!("{rate} RU/s, {shape}"), settings(shape, rate, 100, patience), &record));
        }
        cases.push((format!("{rate} RU/s, paced"), settings(Shape::Paced, rate, 100, 250), &record));
    }
    for patience in [0, 50] {
        // A cap that minutes are over for most of the time.
        let shape = Shape::WarmUp { period: Span::secs(10), factor: 10 };
        let name = format!("300 RU/s, {shape}, {patience} ms");
        cases.push((name, settings(shape, 300, 100, patience), &record));
    }
    for (name, quota) in rolling() {
        let settings = Settings { quota: Some(quota), ..settings(Shape::TokenBucket, 620, 100, 250) };
        cases.push((format!("620 RU/s, {name}"), settings, &record));
    }
    cases.iter().map(|(name, settings, record)| measured(&setting, name, settings, record)).collect()
}

/// Quotas that roll, of five sixths of what is wanted in the mean, so that they are used up for a while each day.
fn rolling() -> [(&'static str, Windows); 5] {
    let length = |minutes: u64| Span::secs(minutes * 60);
    [
        ("25,000 RU per rolling minute", Windows::rolling(Ru::whole(25_000), length(1))),
        ("25,000 requests per rolling minute", Windows::rolling_requests(25_000, length(1))),
        ("1,500,000 RU per rolling hour", Windows::rolling(Ru::whole(1_500_000), length(60))),
        ("36,000,000 RU per rolling day", Windows::rolling(Ru::whole(36_000_000), length(1_440))),
        ("1,500,000 requests per rolling hour", Windows::rolling_requests(1_500_000, length(60))),
    ]
}

fn settings(shape: Shape, rate: i64, burst_percent: i64, patience_ms: u64) -> Settings {
    let burst = Some(Ru::whole((rate * burst_percent / 100).max(1)));
    Settings { shape, rate: Rate::whole(rate), burst, patience: Span::millis(patience_ms), quota: None }
}

fn measured(setting: &Setting, name: &str, settings: &Settings, record: &Record) -> Result<Row, BenchError> {
    let mut took = Vec::new();
    for _ in 0..setting.rounds {
        let (watch, mut budget) = (Stopwatch::start(), Budget::default());
        compare(record, Some(settings), settings, BEARABLE, &mut budget).map_err(failed("replay a month"))?;
        took.push(watch.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(Row::new(format!("what-if/{name}"), MS, Samples::new(took)).mark(Mark::AtMost(MOST_MS)))
}

/// Minutes of such days, in operations that cost so much each.
fn minutes(days: u64, cost: u64) -> Result<Record, RecordError> {
    let mut noise = 1_u64;
    let minute = |minute: u64| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let of_day = minute % 1_440;
        let by_day = 200 + 600 * of_day.min(1_440 - of_day) / 720;
        let ru = by_day * 60 * (80 + (noise >> 33) % 41) / 100;
        let amount = Ru::whole(i64::try_from(ru).unwrap_or(0));
        Sample { start: Time(minute * 60_000_000), length: Span::secs(60), amount, operations: ru / cost }
    };
    Record::new((0..days * 1_440).map(minute).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_an_answer() {
        let rows = run(&Setting { rounds: 1, ..Setting::QUICK }).unwrap();
        assert_eq!(rows.len(), 2 * (3 * 4 + 1 + 5 + 1) + 2 + 5);
    }
}
