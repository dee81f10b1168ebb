//! Group definitions drawn from an input: every value that the admin API lets through.

use tidegate_core::group::{Burstable, Fallback, GroupId, GroupSpec, Policy, Priority};
use tidegate_core::units::{Rate, Ru, Span};

use crate::input::Input;

/// The groups at the start: a parent, two below it, and one beside it. Ids are never used again.
pub(super) const GROUPS: [GroupId; 4] = [GroupId(2), GroupId(3), GroupId(4), GroupId(5)];

/// A definition below `parent`. A fallback is only drawn when no check holds the bound against it.
pub(super) fn draw(input: &mut Input<'_>, parent: Option<GroupId>, fallbacks: bool) -> GroupSpec {
    let rate = rate(input);
    let fallback = match input.below(8) {
        0 if fallbacks => Fallback::Unlimited,
        1 if fallbacks => Fallback::Rate(self::rate(input)),
        _ => Fallback::Stop,
    };
    let kind = input.below(16);
    let spec = GroupSpec {
        parent,
        rate: (kind != 15).then_some(rate),
        burst: (input.below(3) == 0).then(|| Ru(input.amount(Ru::MAX.0).max(1))),
        burstable: match input.below(6) {
            4 => Burstable::Moderated(rate.max(self::rate(input))),
            5 => Burstable::Unlimited,
            _ => Burstable::Off,
        },
        priority: input.pick(&[Priority::Medium, Priority::High, Priority::Low]).unwrap_or_default(),
        weight: u32::try_from(input.between(1, u64::from(GroupSpec::MAX_WEIGHT))).unwrap_or(1),
        fallback,
        fallback_total: (fallbacks && input.below(8) == 7).then(|| self::rate(input)),
        max_debt: Ru(input.amount(Ru::MAX.0)),
        // Nothing holds what is admitted in shadow.
        shadow: false,
        policy: match kind {
            13 => {
                let period = Span(input.between(1_000_000, 10_000_000));
                Policy::WarmUp { period, factor: u32::try_from(input.between(2, 100)).unwrap_or(2) }
            }
            14 => Policy::Paced,
            _ => Policy::TokenBucket,
        },
        ..periods(input)
    };
    // The highest rates store more than fits.
    if spec.curve().is_err() { GroupSpec { policy: Policy::Paced, ..spec } } else { spec }
}

/// Lease length and renewal period.
fn periods(input: &mut Input<'_>) -> GroupSpec {
    let usual = GroupSpec::unlimited();
    if input.flag() {
        return usual;
    }
    let (shortest, longest) = GroupSpec::TTL_RANGE;
    let ttl = Span(input.between(shortest.0, longest.0));
    GroupSpec { ttl, renew_every: Span(input.between(100_000, ttl.0 / 2)), ..usual }
}

/// Where a group is at the start.
pub(super) fn parent(id: GroupId) -> Option<GroupId> {
    let [top, one, two, _] = GROUPS;
    (id == one || id == two).then_some(top)
}

/// Mostly rates at which a run of a few seconds can reach the bound.
fn rate(input: &mut Input<'_>) -> Rate {
    match input.below(4) {
        0 => Rate(input.amount(Rate::MAX.0).max(1)),
        _ => Rate::whole(i64::from(input.byte()) + 1),
    }
}
