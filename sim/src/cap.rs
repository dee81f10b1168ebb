//! The most that may be in force for a group at any moment, while its definition changes and leases are out.
//!
//! A definition counts from its acknowledgement on, and the one before it for as long as a lease of it may be out: the
//! cap is the more generous of the two. What a group brings along on top, because its leases came out of another
//! place, counts beside that.

use tidegate_core::bound::Bound;
use tidegate_core::group::GroupSpec;
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::curve::Curve;

/// A rate, and the depth of the bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) rate: Rate,
    pub(super) depth: Ru,
}

impl Limits {
    /// No limit at all.
    pub(super) const NONE: Self = Self { rate: Rate::MAX, depth: Ru::MAX };

    /// Those of a definition.
    pub(super) fn of(spec: &GroupSpec) -> Self {
        match (spec.limit(), spec.depth()) {
            (Some(rate), Some(depth)) => Self { rate, depth },
            _ => Self::NONE,
        }
    }

    /// The stricter of both.
    pub(super) fn least(self, other: Self) -> Self {
        Self { rate: self.rate.min(other.rate), depth: self.depth.min(other.depth) }
    }

    fn most(self, other: Self) -> Self {
        Self { rate: self.rate.max(other.rate), depth: self.depth.max(other.depth) }
    }

    fn and(self, other: Self) -> Self {
        Self {
            rate: Rate(self.rate.0.saturating_add(other.rate.0).min(Rate::MAX.0)),
            depth: Ru(self.depth.0.saturating_add(other.depth.0).min(Ru::MAX.0)),
        }
    }
}

/// Limits that count until then.
#[derive(Clone, Copy, Debug)]
struct Possible {
    limits: Limits,
    until: Time,
}

/// The admissions of a group, and the cap they are held against.
#[derive(Clone, Debug)]
pub(super) struct Capped {
    /// Held against the definition of the moment, for reports.
    pub(super) nominal: Bound,
    /// Held against all that may be in force.
    judged: Bound,
    /// The rate of the definition.
    defined: Rate,
    /// The most generous of these counts.
    possible: Vec<Possible>,
    /// These count beside it.
    beside: Vec<Possible>,
    /// The fallbacks of nodes that are cut off, which count as well.
    fallbacks: Rate,
    /// The highest rate that ever counted, no limit aside.
    pub(super) fastest: Rate,
    /// Something changed since the group was made.
    pub(super) changed: bool,
    /// Of a rate that warms up.
    pub(super) curve: Option<Curve>,
}

impl Capped {
    /// A group is created.
    pub(super) fn new(now: Time, limits: Limits) -> Self {
        let mut capped = Self {
            nominal: Bound::new(now, limits.rate),
            defined: limits.rate,
            judged: Bound::new(now, Rate::ZERO),
            possible: vec![Possible { limits, until: Time(u64::MAX) }],
            beside: Vec::new(),
            fallbacks: Rate::ZERO,
            fastest: Rate::ZERO,
            changed: false,
            curve: None,
        };
        capped.set(now, Ru::ZERO);
        capped.judged.begin_again(now);
        capped
    }

    /// RU were admitted.
    pub(super) fn admit(&mut self, now: Time, cost: Ru) {
        self.catch_up(now);
        self.nominal.admit(now, cost);
        self.judged.admit(now, cost);
        if let Some(curve) = &mut self.curve {
            curve.admit(now, cost);
        }
    }

    /// RU above the cap and the burst in the worst window.
    pub(super) fn excess(&self) -> Ru {
        self.judged.excess()
    }

    /// Windows begin now at the soonest.
    pub(super) fn begin_again(&mut self, now: Time) {
        self.catch_up(now);
        self.nominal.begin_again(now);
        self.judged.begin_again(now);
    }

    /// The limits that leases may have been made under, without fallbacks.
    pub(super) fn leased(&self) -> Limits {
        let most =
            self.possible.iter().map(|possible| possible.limits).reduce(Limits::most).unwrap_or_default();
        self.beside.iter().map(|beside| beside.limits).fold(most, Limits::and)
    }

    /// Another definition is in force; leases under those before end at `settled`.
    pub(super) fn altered(&mut self, now: Time, limits: Limits, settled: Time) {
        self.removed(now, settled);
        self.defined = limits.rate;
        self.possible.push(Possible { limits, until: Time(u64::MAX) });
        self.set(now, Ru::ZERO);
    }

    /// The group is gone; its leases end at `settled`.
    pub(super) fn removed(&mut self, now: Time, settled: Time) {
        self.catch_up(now);
        self.changed = true;
        self.possible.iter_mut().for_each(|possible| possible.until = possible.until.min(settled));
    }

    /// A group of this name is there again, with a full bucket beside what is left of the one before.
    pub(super) fn created(&mut self, now: Time, limits: Limits, settled: Time) {
        self.catch_up(now);
        self.changed = true;
        self.defined = limits.rate;
        let left = self.leased();
        self.beside.clear();
        if left != Limits::default() {
            self.beside.push(Possible { limits: left, until: settled });
        }
        self.possible = vec![Possible { limits, until: Time(u64::MAX) }];
        self.set(now, limits.depth);
    }

    /// Leases that were made elsewhere count here until `settled`.
    pub(super) fn joined(&mut self, now: Time, limits: Limits, settled: Time) {
        self.catch_up(now);
        self.changed = true;
        self.beside.push(Possible { limits, until: settled });
        self.set(now, limits.depth);
    }

    /// Nodes that are cut off may admit so much.
    pub(super) fn allow_fallbacks(&mut self, now: Time, rate: Rate) {
        if rate != self.fallbacks {
            self.catch_up(now);
            let more = (rate - self.fallbacks).over(Span::secs(1));
            self.fallbacks = rate;
            self.set(now, more);
        }
    }

    /// The burst of a definition, and a second of the fallbacks.
    pub(super) fn depth(&self, spec: &GroupSpec) -> Ru {
        Limits::of(spec).depth + self.fallbacks.over(Span::secs(1))
    }

    /// Takes into account what ended until now.
    pub(super) fn catch_up(&mut self, now: Time) {
        loop {
            let ends = self.possible.iter().chain(&self.beside).map(|possible| possible.until);
            let Some(end) = ends.min().filter(|end| *end <= now) else { return };
            self.possible.retain(|possible| possible.until > end);
            self.beside.retain(|possible| possible.until > end);
            self.set(end, Ru::ZERO);
        }
    }

    /// Sets the bound from `at` on; `more` comes at once.
    fn set(&mut self, at: Time, more: Ru) {
        let burst = self.fallbacks.over(Span::secs(1));
        let limits = self.leased().and(Limits { rate: self.fallbacks, depth: burst });
        if limits.rate < Rate::MAX {
            self.fastest = self.fastest.max(limits.rate);
        }
        self.nominal.set_rate(at, self.defined + self.fallbacks);
        self.judged.set_cap(at, limits.rate, limits.depth, more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(rate: i64) -> Limits {
        Limits { rate: Rate::whole(rate), depth: Ru::whole(rate) }
    }

    /// The excess over the cap when so much is admitted at once at each of these seconds.
    fn excess(capped: &mut Capped, admitted: &[(u64, i64)]) -> Ru {
        for (second, ru) in admitted {
            capped.admit(Time(second * 1_000_000), Ru::whole(*ru));
        }
        capped.excess()
    }

    #[test]
    fn a_lowered_limit_counts_at_its_old_value_until_leases_have_ended_and_no_longer() {
        let lowered = || {
            let mut capped = Capped::new(Time(0), limits(100));
            capped.altered(Time(10_000_000), limits(10), Time(13_000_000));
            capped
        };
        let then = |ru| excess(&mut lowered(), &[(10, 100), (11, 100), (12, 100), (14, ru)]);
        assert_eq!((then(10), then(11)), (Ru::ZERO, Ru::whole(1)));
        assert_eq!(excess(&mut lowered(), &[(15, 10), (16, 11)]), Ru::whole(1));
    }

    #[test]
    fn a_group_that_comes_again_has_its_bucket_and_what_is_left_of_the_one_before() {
        let again = |at: u64| {
            let mut capped = Capped::new(Time(0), limits(10));
            capped.removed(Time(10_000_000), Time(13_000_000));
            capped.created(Time(at), limits(5), Time(13_000_000));
            capped
        };
        assert_eq!(excess(&mut again(20_000_000), &[(19, 0), (20, 5)]), Ru::ZERO);
        assert_eq!(excess(&mut again(20_000_000), &[(20, 6)]), Ru::whole(1));
        assert_eq!(excess(&mut again(11_000_000), &[(11, 15), (12, 15)]), Ru::ZERO);
        assert_eq!(excess(&mut again(11_000_000), &[(11, 15), (12, 16)]), Ru::whole(1));
    }

    #[test]
    fn no_limit_ends_with_the_last_lease_under_it() {
        let mut capped = Capped::new(Time(0), Limits::NONE);
        capped.altered(Time(10_000_000), limits(10), Time(13_000_000));
        assert_eq!(excess(&mut capped, &[(12, 1_000_000), (13, 10)]), Ru::ZERO);
        assert_eq!(excess(&mut capped, &[(13, 1)]), Ru::whole(1));
    }
}
