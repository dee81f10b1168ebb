//! The grant decision: `Engine::renew` in steady state with changing demands.
//!
//! Beside it stand the figures PD's resource manager publishes for a token request of as many clients. They were
//! measured by others on another machine, so their ratio shows an order of magnitude and has no mark.

use super::clock::Stopwatch;
use super::contest::{Work, contest};
use super::error::BenchError;
use super::renewals::Renewals;
use super::row::{Kind, Mark, Row, US};
use super::samples::Samples;
use super::setting::Setting;

/// Clients, the most microseconds a decision may take, and what PD publishes.
const SIZES: [(usize, f64, f64); 3] = [(10, 1.0, 2.8), (1_000, 2.0, 258.0), (10_000, 3.0, 3_000.0)];
/// A group below the root, and one below two others.
const DEPTHS: [(u32, &str); 2] = [(1, "flat"), (3, "nested 3 deep")];

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for (clients, most, published) in SIZES {
        let (mut flat, mut nested) = (Renewals::start(clients, 1)?, Renewals::start(clients, 3)?);
        let mut contenders: [Work<'_>; 2] = [work(&mut flat), work(&mut nested)];
        for (samples, (_, depth)) in contest(setting, &mut contenders)?.into_iter().zip(DEPTHS) {
            let row =
                Row::new(format!("decision/{clients} clients, {depth}"), US, samples.map(|ns| ns / 1e3));
            rows.push(row.mark(Mark::AtMost(most)).beside(
                Kind::Published,
                "PD",
                Samples::new(vec![published]),
                None,
            ));
        }
    }
    Ok(rows)
}

/// `count` renewals, or one more where the last was to be acknowledged.
pub(super) fn work(renewals: &mut Renewals) -> Work<'_> {
    Box::new(|count| {
        let watch = Stopwatch::start();
        let mut done = 0;
        while done < count {
            done += renewals.renew()?;
        }
        Ok(watch.elapsed())
    })
}
