//! A metered operation that does nothing: admission, the thread's CPU clock read before and after, settlement by the
//! cost table. Beside it the two readings alone, which nobody can save who meters CPU.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_client::meter;

use super::admission::{COST, WARM};
use super::clock::Stopwatch;
use super::contest::{Work, contest};
use super::error::{BenchError, failed};
use super::row::{Kind, Mark, NS, Row};
use super::setting::Setting;
use super::site::{Site, capped};

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let site = Site::with(std::iter::once(capped("busy", "100000000")), Vec::new())?;
    let client = site.client("bench-metered")?;
    let group = site.group(&client, "busy")?;
    site.keep_warm(std::slice::from_ref(&group), WARM)?;
    let mut contenders: [Work<'_>; 2] = [
        Box::new(|count| {
            timed(count, || {
                let permit = group.try_acquire(black_box(COST)).map_err(failed("be admitted"))?;
                let ((), usage) = meter::measure(|| ());
                black_box(permit.settle(&usage));
                Ok(())
            })
        }),
        Box::new(|count| {
            timed(count, || {
                black_box(clock_gettime(ClockId::ThreadCPUTime));
                black_box(clock_gettime(ClockId::ThreadCPUTime));
                Ok(())
            })
        }),
    ];
    let samples = contest(setting, &mut contenders)?;
    let [ours, floor] = samples.as_slice() else { return Ok(Vec::new()) };
    let row = Row::new("metered/operation", NS, ours.clone());
    Ok(vec![row.beside(Kind::Floor, "two CPU clock readings", floor.clone(), Some(Mark::AtMost(1.2)))])
}

fn timed(count: u64, operation: impl Fn() -> Result<(), BenchError>) -> Result<Duration, BenchError> {
    let watch = Stopwatch::start();
    (0..count).try_for_each(|_| operation())?;
    Ok(watch.elapsed())
}
