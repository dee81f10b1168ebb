//! Refusal: `try_acquire` on a group whose bucket is empty and whose rate the controller has given as far as it may.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::{Quota, RateLimiter};
use tidegate_client::{Refused, Ru, RuParts};

use super::clock::Stopwatch;
use super::contest::{Work, contest};
use super::error::{BenchError, failed};
use super::row::{Kind, Mark, NS, Row};
use super::setting::Setting;
use super::site::{Site, capped};
use tidegate_proto::v1;

/// Half the depth of the bucket, which takes a quarter of an hour to fill.
const COST: Ru = Ru::whole(500);

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let site = Site::start()?;
    site.define(&v1::Group { burst: "1000".to_owned(), ..capped("poor", "1") })?;
    let client = site.client("bench-refusal")?;
    let group = site.group(&client, "poor")?;
    // Whatever is there, and as much again in debt: nothing is admitted while this is measured.
    group.charge_ru(RuParts::flat(Ru::whole(2_000)));
    let Some(quota) = Quota::with_period(Duration::from_secs(3_600)) else { return Ok(Vec::new()) };
    let governor = RateLimiter::direct(quota.allow_burst(NonZeroU32::MIN));
    let _ = governor.check();

    let mut contenders: [Work<'_>; 2] = [
        Box::new(|count| {
            repeated(count, || match group.try_acquire(black_box(COST)) {
                Err(Refused::Throttled { .. }) => Ok(()),
                Err(refused) => Err(failed("be throttled")(refused)),
                Ok(permit) => {
                    permit.cancel();
                    Err(admitted())
                }
            })
        }),
        Box::new(|count| {
            repeated(count, || match black_box(governor.check()) {
                Err(_) => Ok(()),
                Ok(_) => Err(admitted()),
            })
        }),
    ];
    let samples = contest(setting, &mut contenders)?;
    let [ours, peer] = samples.as_slice() else { return Ok(Vec::new()) };
    let row = Row::new("refusal/1 thread", NS, ours.clone()).mark(Mark::AtMost(12.0));
    Ok(vec![row.beside(Kind::Peer, "governor deny", peer.clone(), None)])
}

fn admitted() -> BenchError {
    BenchError::Wrong("an empty bucket admitted".to_owned())
}

fn repeated(count: u64, operation: impl Fn() -> Result<(), BenchError>) -> Result<Duration, BenchError> {
    let watch = Stopwatch::start();
    (0..count).try_for_each(|_| operation())?;
    Ok(watch.elapsed())
}
