//! The cheapest limit under which hardly anything waits.

use super::{Budget, Part, Record, ReplayError, Settings, Shape, Span, Spread, Time, each};
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
    let is_enough = |index| lump.is_none_or(|lump| !is_short(record, &at(index), lump, most));
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

/// Whether a bucket is short of more than `most` at any order of what was wanted: one that holds the burst and what comes
/// while the last one waits, and of which each sample may use all that is there until its end. What leases hold is never
/// more.
fn is_short(record: &Record, settings: &Settings, lump: Ru, most: u128) -> bool {
    let rate = settings.rate.0.unsigned_abs().into();
    let gained = |span: Span| u128::from(span.0).saturating_mul(rate);
    let saved = if settings.shape == Shape::TokenBucket { settings.burst() } else { lump };
    let burst = fine(saved).saturating_add(gained(settings.patience));
    let (mut there, mut end, mut short) = (burst, Time(0), 0_u128);
    for sample in record.samples() {
        there = there.saturating_add(gained(sample.start.since(end))).min(burst);
        there = there.saturating_add(gained(sample.length));
        let wanted = fine(sample.amount);
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
