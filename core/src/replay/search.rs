//! The cheapest limit under which hardly anything waits.

use super::{Budget, Part, Record, ReplayError, Settings, Span, Spread, each};
use crate::units::Rate;

/// Steps of a power of ten, of 1 to 2.5 %. Finer ones would take longer to say what no record is exact to; of twice the
/// width people would not see what a little more rate is worth.
const STEPS: u32 = 160;
/// Powers of ten above 100 micro-RU a second, up to [`Rate::MAX`].
const POWERS: u32 = 13;

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
    let mut holds = |index: u32| {
        let candidate = Settings { rate: candidate(index), patience: bound, ..settings.clone() };
        let mut refused = 0_u128;
        each(record, &candidate, spread, budget, &mut |_, part| {
            if let Part::Refused(amount) = part {
                refused += u128::from(amount.0.unsigned_abs());
            }
            refused <= most
        })?;
        Ok::<_, ReplayError>(refused <= most)
    };
    let (mut low, mut high) = (below(record, settings, bound), STEPS * POWERS);
    // Mostly twice the peak is enough, and spares the steps above it.
    let peak = index_of(record.peak().saturating_mul(2)).max(low);
    if holds(peak)? {
        high = peak;
    } else if holds(high)? {
        low = peak + 1;
    } else {
        return Ok(None);
    }
    // What holds under a rate holds under every higher one.
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

/// The first step whose rate may hold: what starts is at most the burst, and what the rate yields until the last wait ends.
fn below(record: &Record, settings: &Settings, bound: Span) -> u32 {
    let least = record.amount().saturating_sub(record.amount() / 100);
    let (saved, filled) = match settings.burst {
        Some(burst) => (u128::from(burst.0.unsigned_abs()), Span(0)),
        None => (0, Span::secs(1)),
    };
    let time = u128::from(record.span().0) + u128::from(bound.0) + u128::from(filled.0);
    index_of(least.saturating_sub(saved).saturating_mul(1_000_000).checked_div(time).unwrap_or(0))
}

/// The first step of at least so many micro-RU a second; the last one if none is.
fn index_of(rate: u128) -> u32 {
    let (mut low, mut high) = (0, STEPS * POWERS);
    while low < high {
        let middle = low.midpoint(high);
        if u128::from(candidate(middle).0.unsigned_abs()) < rate { low = middle + 1 } else { high = middle }
    }
    low
}

/// 100, 102 to 200, 205 to 500, 510 to 990 micro-RU a second, and ten times as much, and so on.
fn candidate(index: u32) -> Rate {
    let step = i64::from(index % STEPS);
    let digits = match step {
        ..50 => LEAST.0 + 2 * step,
        50..110 => 200 + 5 * (step - 50),
        _ => 500 + 10 * (step - 110),
    };
    Rate(digits.saturating_mul(10_i64.saturating_pow(index / STEPS)).min(Rate::MAX.0))
}
