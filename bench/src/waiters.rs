//! Waiters: ten thousand operations queue behind one that holds all tokens; when it is cancelled they are all woken.
//!
//! Time runs from the cancellation to the last of them running again, all on one thread. A tokio semaphore of as many
//! waiters stands beside it, without and with a longest wait for each. That they are admitted in the order of arrival
//! is checked in every round.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_client::{Group, Permit, Rate, Ru, RuParts};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, timeout};

use super::clock::Stopwatch;
use super::contest::{Work, contest};
use super::error::{BenchError, failed};
use super::row::{Kind, Mark, NS, Row};
use super::setting::Setting;
use super::site::{Site, capped};

/// Operations in the queue.
const WAITERS: u64 = 10_000;
/// Rate of the group: what it brings while they queue is a part of the bucket only.
const RATE: Rate = Rate::whole(100_000);
/// Longer than any of this takes.
const WAIT: Duration = Duration::from_secs(60);
/// How often the bucket is looked at before it is given up.
const TRIES: usize = 500;
/// Short enough for one queue a round: the bucket takes half a second to fill again.
const ROUND: Duration = Duration::from_millis(1);

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let site = Site::with(std::iter::once(capped("queue", "10000000")), Vec::new())?;
    let client = site.client("bench-waiters")?;
    let group = site.group(&client, "queue")?;
    site.keep_warm(std::slice::from_ref(&group), RATE)?;
    let thread = Builder::new_current_thread().enable_all().build().map_err(failed("start a runtime"))?;
    let mut contenders: [Work<'_>; 3] = [
        Box::new(|count| repeated(count, || ours(&thread, &group))),
        Box::new(|count| repeated(count, || semaphore(&thread, None))),
        Box::new(|count| repeated(count, || semaphore(&thread, Some(WAIT)))),
    ];
    let samples = contest(&Setting { round: ROUND, ..*setting }, &mut contenders)?;
    let [own, peer, patient] = samples.as_slice() else { return Ok(Vec::new()) };
    let row = Row::new("waiters/10,000 woken, each", NS, own.clone());
    let row = row.beside(Kind::Peer, "tokio semaphore", peer.clone(), Some(Mark::AtMost(2.0)));
    Ok(vec![row.beside(Kind::Peer, "tokio semaphore, with a timeout", patient.clone(), None)])
}

/// `count` wake-ups, in queues of [`WAITERS`]; the time is scaled to `count`.
fn repeated(
    count: u64,
    queue: impl Fn() -> Result<(Duration, u64), BenchError>,
) -> Result<Duration, BenchError> {
    let (mut took, mut woken) = (Duration::ZERO, 0);
    while woken < count {
        let (time, number) = queue()?;
        took += time;
        woken += number;
    }
    let nanos = took.as_nanos() * u128::from(count) / u128::from(woken.max(1));
    Ok(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

/// One queue on a group: how long the wake-up took, and of how many.
fn ours(thread: &Runtime, group: &Group) -> Result<(Duration, u64), BenchError> {
    thread.block_on(async {
        let holder = take_all(group).await?;
        let each = Ru(holder.estimate().0 / i64::try_from(WAITERS).unwrap_or(i64::MAX));
        let wait = || {
            let group = group.clone();
            async move {
                let permit = group.acquire(each, WAIT).await.map_err(failed("wait"))?;
                // Charged, not given back: what is given back would wake the next.
                let admitted = permit.admitted_at();
                permit.settle_ru(RuParts::flat(each));
                Ok(admitted)
            }
        };
        woken(wait, || holder.cancel()).await
    })
}

/// All tokens there are.
async fn take_all(group: &Group) -> Result<Permit<'_>, BenchError> {
    for _ in 0..TRIES {
        let state = group.state();
        // Nearly full, so that what comes while they queue is little beside it.
        if state.rate >= RATE
            && state.available >= state.cap.scale(4, 5)
            && let Ok(permit) = group.try_acquire(state.available)
        {
            return Ok(permit);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(BenchError::Wrong(format!("the bucket stays empty: {:?}", group.state())))
}

/// The same on a semaphore; a waiter of a group has a longest wait, too.
fn semaphore(thread: &Runtime, longest: Option<Duration>) -> Result<(Duration, u64), BenchError> {
    thread.block_on(async {
        let (semaphore, begun) = (Arc::new(Semaphore::new(0)), Instant::now());
        let wait = || {
            let semaphore = Arc::clone(&semaphore);
            async move {
                let place = semaphore.acquire();
                let place = match longest {
                    Some(longest) => timeout(longest, place).await.map_err(failed("wait"))?,
                    None => place.await,
                };
                place.map_err(failed("wait"))?.forget();
                Ok(begun)
            }
        };
        woken(wait, || semaphore.add_permits(usize::try_from(WAITERS).unwrap_or(0))).await
    })
}

/// Queues tasks that wait, wakes them by `release`, and checks their order.
async fn woken<F>(wait: impl Fn() -> F, release: impl FnOnce()) -> Result<(Duration, u64), BenchError>
where
    F: Future<Output = Result<Instant, BenchError>> + Send + 'static,
{
    let order = Arc::new(Mutex::new(Vec::with_capacity(usize::try_from(WAITERS).unwrap_or(0))));
    let queued = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..WAITERS {
        let (waiting, order, queued) = (wait(), Arc::clone(&order), Arc::clone(&queued));
        tasks.spawn(async move {
            // The next statement runs up to its first wait in this same poll.
            queued.fetch_add(1, Ordering::Relaxed);
            let (mut waiting, mut polls) = (pin!(waiting), 0_u32);
            let admitted = poll_fn(|context| {
                polls += 1;
                waiting.as_mut().poll(context)
            });
            let admitted = Admitted { at: admitted.await?, number, waited: polls > 1 };
            order.lock().unwrap_or_else(PoisonError::into_inner).push(admitted);
            Ok::<(), BenchError>(())
        });
    }
    while queued.load(Ordering::Relaxed) < WAITERS {
        yield_now().await;
    }
    let before = order.lock().unwrap_or_else(PoisonError::into_inner).len();
    let watch = Stopwatch::start();
    release();
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(failed("run a task"))??;
    }
    let took = watch.elapsed();
    in_order(&order.lock().unwrap_or_else(PoisonError::into_inner))?;
    let woken = WAITERS.saturating_sub(u64::try_from(before).unwrap_or(0));
    if woken < WAITERS / 2 {
        return Err(BenchError::Wrong(format!("only {woken} of {WAITERS} were still waiting to be woken")));
    }
    Ok((took, woken))
}

/// An operation, as it ran.
#[derive(Clone, Copy)]
struct Admitted {
    /// When it got its tokens. Early by some milliseconds if it did not wait for them, exact if it did.
    at: Instant,
    /// Its place among those that came.
    number: u64,
    waited: bool,
}

/// Checks those that waited: who came first was admitted first, and of those admitted in one go, woken first.
///
/// At one moment two threads may admit, this one and the client's, each those that are first in the queue. The runtime
/// keeps a queue of tasks for either and mixes them as it likes. So what ran is in order if it can be parted into two
/// rows that are.
fn in_order(ran: &[Admitted]) -> Result<(), BenchError> {
    let mut by_moment: BTreeMap<Instant, Vec<u64>> = BTreeMap::new();
    for one in ran.iter().filter(|one| one.waited) {
        by_moment.entry(one.at).or_default().push(one.number);
    }
    let mut before = None;
    for together in by_moment.values() {
        // The last of either row; each joins the row that leaves more room to those after it.
        let (mut high, mut low) = (None, None);
        for number in together.iter().copied().map(Some) {
            if number <= before || number <= low {
                return Err(overtaken(number.unwrap_or(0)));
            }
            let row = if number > high { &mut high } else { &mut low };
            *row = number;
        }
        before = high;
    }
    Ok(())
}

fn overtaken(number: u64) -> BenchError {
    BenchError::Wrong(format!("waiter {number} was overtaken by one that came after it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moments in microseconds and numbers, in the order in which they ran.
    fn judged(ran: &[(u64, u64)], waited: bool) -> bool {
        let begun = Instant::now();
        let admitted = |(micros, number): &(u64, u64)| Admitted {
            at: begun + Duration::from_micros(*micros),
            number: *number,
            waited,
        };
        in_order(&ran.iter().map(admitted).collect::<Vec<_>>()).is_ok()
    }

    #[test]
    fn who_overtakes_is_noticed() {
        for broken in [
            &[(1, 1), (2, 0)][..],
            &[(1, 0), (1, 2), (2, 1), (2, 3)],
            &[(2, 5), (1, 6)],
            &[(1, 2), (1, 1), (1, 0)],
            &[(1, 0), (1, 4), (1, 3), (1, 5), (1, 2)],
        ] {
            assert!(!judged(broken, true), "{broken:?}");
        }
    }

    #[test]
    fn what_says_nothing_of_the_queue_is_no_complaint() {
        for fine in [
            &[(1, 0), (1, 1), (2, 2), (2, 3)][..],
            // Admitted before, ran after.
            &[(2, 2), (2, 3), (1, 0), (1, 1)],
            // Two threads woke them in the same microsecond.
            &[(1, 2), (1, 3), (1, 0), (1, 4), (1, 1)],
            // Others did not wait.
            &[(1, 3), (1, 7), (2, 8)],
        ] {
            assert!(judged(fine, true), "{fine:?}");
        }
        assert!(judged(&[(1, 1), (2, 0)], false), "who did not wait has no exact time");
    }
}
