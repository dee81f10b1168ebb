//! A metered operation that does nothing: admission, the thread's CPU clock read before and after, settlement by the
//! cost table. Beside it the kernel's CPU clock read twice, a system call each, and the monotonic clock read twice,
//! which no meter can save. The same with the thread's io counters, which are a file.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_client::{Group, Usage, meter};

use super::admission::{COST, WARM};
use super::clock::Stopwatch;
use super::contest::{Work, contest};
use super::error::{BenchError, failed};
use super::row::{Kind, Mark, NS, Row};
use super::setting::Setting;
use super::site::{Site, capped};

/// More than the counters of a thread take as text.
const COUNTERS: usize = 512;

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let site = Site::with(std::iter::once(capped("busy", "100000000")), Vec::new())?;
    let client = site.client("bench-metered")?;
    let group = site.group(&client, "busy")?;
    site.keep_warm(std::slice::from_ref(&group), WARM)?;
    let counters = File::open("/proc/thread-self/io").map_err(failed("open /proc/thread-self/io"))?;
    let mut contenders: [Work<'_>; 5] = [
        Box::new(|count| timed(count, || operation(&group, || meter::measure(|| ()).1))),
        Box::new(|count| {
            timed(count, || {
                black_box(clock_gettime(ClockId::ThreadCPUTime));
                black_box(clock_gettime(ClockId::ThreadCPUTime));
                Ok(())
            })
        }),
        Box::new(|count| timed(count, || operation(&group, || meter::measure_with_io(|| ()).1))),
        Box::new(|count| {
            timed(count, || {
                let mut buffer = [0_u8; COUNTERS];
                for _ in 0..2 {
                    black_box(clock_gettime(ClockId::ThreadCPUTime));
                    let read = counters.read_at(&mut buffer, 0).map_err(failed("read the io counters"))?;
                    black_box(read);
                }
                Ok(())
            })
        }),
        Box::new(|count| {
            timed(count, || {
                black_box(clock_gettime(ClockId::Monotonic));
                black_box(clock_gettime(ClockId::Monotonic));
                Ok(())
            })
        }),
    ];
    let samples = contest(setting, &mut contenders)?;
    let [ours, kernel, ours_with_io, with_io, floor] = samples.as_slice() else { return Ok(Vec::new()) };
    let metered = Row::new("metered/operation", NS, ours.clone())
        .beside(Kind::Peer, "kernel's CPU clock read twice", kernel.clone(), Some(Mark::AtMost(1.2)))
        .beside(Kind::Floor, "monotonic clock read twice", floor.clone(), None);
    let metered_with_io = Row::new("metered/operation with io counters", NS, ours_with_io.clone()).beside(
        Kind::Floor,
        "two readings of clock and counters",
        with_io.clone(),
        Some(Mark::AtMost(1.2)),
    );
    Ok(vec![metered, metered_with_io])
}

/// An operation whose work is to be measured.
pub(super) fn operation(group: &Group, measure: impl FnOnce() -> Usage) -> Result<(), BenchError> {
    let permit = group.try_acquire(black_box(COST)).map_err(failed("be admitted"))?;
    black_box(permit.settle(&measure()));
    Ok(())
}

fn timed(count: u64, operation: impl Fn() -> Result<(), BenchError>) -> Result<Duration, BenchError> {
    let watch = Stopwatch::start();
    (0..count).try_for_each(|_| operation())?;
    Ok(watch.elapsed())
}
