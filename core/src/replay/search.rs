//! The cheapest limit under which hardly anything waits.

use super::{Budget, Part, Record, ReplayError, Sample, Settings, Shape, Span, Spread, Time, Windows, each};
use crate::policy::fine;
use crate::units::{Rate, Ru};

/// Steps of a power of ten, of 1 to 2.5 %. Finer ones would take longer to say what no record is exact to; of twice the
/// width people would not see what a little more rate is worth.
const STEPS: u32 = 160;
/// Powers of ten above 100 micro-RU a second, up to [`Rate::MAX`].
const POWERS: u32 = 13;

/// The last step.
pub(super) const LAST: u32 = STEPS * POWERS;
/// The first step. Where it is enough, any limit is: the burst covers all that was wanted.
pub const LEAST: Rate = Rate(100);

/// The lowest rate, to 2.5 %, under which 99 of 100 parts of what was wanted start within `bound`, and the others are
/// refused; `None` if none up to [`Rate::MAX`] is: operations cost more than the burst, or more is wanted than the quota.
///
/// # Errors
/// Settings that no policy has, or a used up budget.
pub fn cheapest(
    record: &Record,
    settings: &Settings,
    spread: Spread,
    bound: Span,
    budget: &mut Budget,
) -> Result<Option<Rate>, ReplayError> {
    let most = record.amount() / 100;
    let at = |index: u32| Settings { rate: candidate(index), patience: bound, ..settings.clone() };
    let mut holds = |index: u32| {
        let mut refused = 0_u128;
        each(record, &at(index), (spread, false), budget, &mut |_, part| {
            if let Part::Refused(amount) = part {
                refused += u128::from(amount.0.unsigned_abs());
            }
            refused <= most
        })?;
        Ok::<_, ReplayError>(refused <= most)
    };
    // A rate may be too high for its warm-up, and every higher one is, too.
    let top = first(0, LAST + 1, |index| !at(index).has_curve()).saturating_sub(1);
    // Where nothing is saved up, what comes at one moment starts together.
    let lump = match (settings.shape, spread) {
        (Shape::TokenBucket, _) => Some(Ru::ZERO),
        (_, Spread::Even) => Some(record.lump()),
        (_, Spread::AtOnce) => None,
    };
    let is_enough = |index| {
        lump.is_none_or(|lump| !is_short(record, &Bucket::of(&at(index), lump), most, |sample| sample.amount))
    };
    if settings.quota.as_ref().is_some_and(|quota| is_too_small(record, quota, bound, most)) {
        return Ok(None);
    }
    let mut low = first(0, top, is_enough);
    // What holds under a rate holds under every higher one. The bound below is near mostly, and a rate that is too low is
    // found out before the end of the record: in steps of twice the width, few runs see all of it.
    let (mut high, mut width) = (low, 1);
    while !holds(high)? {
        if high == top {
            return Ok(None);
        }
        (low, high, width) = (high + 1, high.saturating_add(width).min(top), width * 2);
    }
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(Some(candidate(high)))
}

/// A bucket that has at least what may start at any time. Amounts are millionths of a micro-RU.
pub(super) struct Bucket {
    /// What it has in a microsecond.
    pub(super) rate: u128,
    /// What it holds.
    pub(super) burst: u128,
}

impl Bucket {
    /// It holds the burst and what comes while the last one waits. What leases hold is never more.
    fn of(settings: &Settings, lump: Ru) -> Self {
        let rate = settings.rate.0.unsigned_abs().into();
        let saved = if settings.shape == Shape::TokenBucket { settings.burst() } else { lump };
        let waited = u128::from(settings.patience.0).saturating_mul(rate);
        Self { rate, burst: fine(saved).saturating_add(waited) }
    }
}

/// Whether more than `most` is refused for a quota that rolls, whatever the rate.
fn is_too_small(record: &Record, quota: &Windows, patience: Span, most: u128) -> bool {
    let Some(bucket) = quota.bucket(patience) else { return false };
    match quota.ru() {
        Some(_) => is_short(record, &bucket, most, |sample| sample.amount),
        None => {
            let Some(refused) = most.checked_div(record.least_cost().0.unsigned_abs().into()) else {
                return false;
            };
            is_short(record, &bucket, refused, Sample::paying)
        }
    }
}

/// Whether a bucket is short of more than `most` at any order of what was wanted, if each sample may use all that is
/// there until its end.
fn is_short(record: &Record, bucket: &Bucket, most: u128, wanted: impl Fn(&Sample) -> Ru) -> bool {
    let Bucket { rate, burst } = *bucket;
    let gained = |span: Span| u128::from(span.0).saturating_mul(rate);
    let (mut there, mut end, mut short) = (burst, Time(0), 0_u128);
    for sample in record.samples() {
        there = there.saturating_add(gained(sample.start.since(end))).min(burst);
        there = there.saturating_add(gained(sample.length));
        let wanted = fine(wanted(sample));
        short += wanted.saturating_sub(there);
        if short > most.saturating_mul(1_000_000) {
            return true;
        }
        there = there.saturating_sub(wanted).min(burst);
        end = sample.end();
    }
    false
}

/// The first number of a range, its end included, of which something is true, given that it is of all that follow; its
/// end if it is of none.
fn first(mut low: u32, mut high: u32, is: impl Fn(u32) -> bool) -> u32 {
    while low < high {
        let middle = low.midpoint(high);
        if is(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// 100, 102 to 200, 205 to 500, 510 to 990 micro-RU a second, and ten times as much, and so on.
pub(super) fn candidate(index: u32) -> Rate {
    let step = i64::from(index % STEPS);
    let digits = match step {
        ..50 => LEAST.0 + 2 * step,
        50..110 => 200 + 5 * (step - 50),
        _ => 500 + 10 * (step - 110),
    };
    Rate(digits.saturating_mul(10_i64.saturating_pow(index / STEPS)).min(Rate::MAX.0))
}
