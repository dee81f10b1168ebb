//! Admission: `try_acquire` and `settle_ru` on a group with a lease, by one thread and by two on the same group.
//!
//! governor's direct limiter decides only; a mutex around a token bucket does what a simple limiter does; a shared
//! counter that each thread decrements is the least that two threads can pay.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tidegate_client::{Group, Rate, Ru, RuParts};

use super::clock::Stopwatch;
use super::contest::{Work, contest};
use super::error::{BenchError, failed};
use super::row::{Kind, Mark, NS, PER_S, Row};
use super::setting::Setting;
use super::site::{Site, capped};

/// Rate kept leased, far above what the loops use.
pub(super) const WARM: Rate = Rate::whole(1_000_000);
/// Cost of an operation.
pub(super) const COST: Ru = Ru(1_000);

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let site = Site::start()?;
    site.define(&capped("busy", "100000000"))?;
    let client = site.client("bench-admission")?;
    let group = site.group(&client, "busy")?;
    site.keep_warm(std::slice::from_ref(&group), WARM)?;

    let governor = generous();
    let bucket = Bucket::new();
    let counter = AtomicI64::new(i64::MAX);
    let ours = || admit(&group);
    let theirs = || governor.check().map_err(failed("pass governor"));
    let locked = || bucket.take(1).then_some(()).ok_or_else(empty);
    let shared = || {
        black_box(counter.fetch_sub(1, Ordering::Relaxed));
        Ok(())
    };
    let mut rows = Vec::new();
    for (threads, most, faster) in [(1_u64, 10.0, 2.0), (2, 12.0, 5.0)] {
        let mut contenders: [Work<'_>; 4] = [
            Box::new(|count| on_threads(threads, count, &ours)),
            Box::new(|count| on_threads(threads, count, &theirs)),
            Box::new(|count| on_threads(threads, count, &locked)),
            Box::new(|count| on_threads(threads, count, &shared)),
        ];
        let samples = contest(setting, &mut contenders)?;
        let [own, peer, mutex, floor] = samples.as_slice() else { continue };
        let case = format!("admission/{threads} thread{}", if threads == 1 { "" } else { "s" });
        let row = Row::new(&case, NS, own.clone())
            .mark(Mark::AtMost(most))
            .beside(Kind::Peer, "governor check", peer.clone(), Some(Mark::AtMost(1.0 / faster)))
            .beside(Kind::Peer, "mutex token bucket", mutex.clone(), None)
            .beside(Kind::Floor, "atomic fetch_sub", floor.clone(), None)
            .note(
                "ns per operation on each thread; ours is try_acquire and settle_ru, the others decide only",
            );
        rows.push(row);
        if threads > 1 {
            let throughput = |ns: f64| threads as f64 * 1e9 / ns;
            let row = Row::new(format!("{case}, throughput"), PER_S, own.map(throughput)).beside(
                Kind::Peer,
                "governor check",
                peer.map(throughput),
                None,
            );
            rows.push(row);
        }
    }
    Ok(rows)
}

/// One operation of ours.
pub(super) fn admit(group: &Group) -> Result<(), BenchError> {
    match group.try_acquire(black_box(COST)) {
        Ok(permit) => {
            black_box(permit.settle_ru(RuParts::flat(COST)));
            Ok(())
        }
        Err(refused) => Err(failed("be admitted")(refused)),
    }
}

/// A governor that never refuses what a loop does.
fn generous() -> DefaultDirectRateLimiter {
    RateLimiter::direct(quota())
}

/// A thousand million a second: the highest rate that governor can express, a nanosecond each.
pub(super) fn quota() -> Quota {
    Quota::per_second(NonZeroU32::new(1_000_000_000).unwrap_or(NonZeroU32::MIN))
}

/// `count` operations, shared by the threads; time from the moment all of them stand ready, times the number of
/// threads, so that divided by the operations it is what one takes on its thread.
fn on_threads(
    threads: u64,
    count: u64,
    operation: &(impl Fn() -> Result<(), BenchError> + Sync),
) -> Result<Duration, BenchError> {
    let each = count.div_ceil(threads);
    let work = || (0..each).try_for_each(|_| operation());
    if threads == 1 {
        let watch = Stopwatch::start();
        work()?;
        return Ok(watch.elapsed());
    }
    let parties = usize::try_from(threads).unwrap_or(usize::MAX);
    let barrier = Barrier::new(parties);
    let timed = || {
        barrier.wait();
        let watch = Stopwatch::start();
        work().map(|()| watch.elapsed())
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(timed)).collect();
        let mut total = Duration::ZERO;
        for thread in running {
            let took = thread.join().map_err(|_| BenchError::Wrong("a thread panicked".to_owned()))?;
            total += took?;
        }
        Ok(total)
    })
}

fn empty() -> BenchError {
    BenchError::Wrong("the mutex bucket is empty".to_owned())
}

/// A simple limiter: one lock around tokens that time refills.
struct Bucket(Mutex<(u64, Duration)>, Stopwatch);

impl Bucket {
    fn new() -> Self {
        Self(Mutex::new((0, Duration::ZERO)), Stopwatch::start())
    }

    /// Takes `cost` of a thousand million tokens a second, a second's worth at most.
    fn take(&self, cost: u64) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.1.elapsed();
        let earned = u64::try_from(now.saturating_sub(state.1).as_nanos()).unwrap_or(u64::MAX);
        let tokens = state.0.saturating_add(earned).min(1_000_000_000);
        let covered = tokens >= cost;
        *state = (if covered { tokens - cost } else { tokens }, now);
        covered
    }
}
