//! What a statement will probably cost, so that it can be admitted before it runs.
//!
//! In: a group, a template's fingerprint, its kind, and after each run the RU it cost. Out: RU, in micro-RU. Each
//! template keeps, in integers, an exponentially weighted mean and a running 95th percentile. The percentile rises by
//! 19 parts of a step when a run costs more and falls by one part when it costs less, so that it rests where one run
//! in twenty costs more, whatever the shape of the costs; the step is a fraction of how far runs usually are from
//! it, so that it both finds a new level and comes to rest. *Source*: stochastic approximation of a quantile
//! (Robbins and Monro, 1951); the mean is that of TCP's round-trip estimator (Jacobson, 1988).
//!
//! A template seen for the first time falls back to what its kind of statement costs, which starts at the table's
//! price of a typical one and is moved from there: a single run says much of its template and little of others.
//! Everything is learnt group by group, so that what one runs changes nothing for another: an estimate above what a
//! group may have at once would keep it waiting for its neighbour's sake. Memory is bounded; which templates were given
//! up is counted.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;
use tidegate_core::units::Ru;

use crate::sql::{Fingerprint, StatementKind};
use crate::table::CostTable;
use crate::ways::Ways;

/// Which figure of a forecast [`Estimator::estimate`] gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aim {
    /// The mean: surcharges and refunds even out, and a cheap run does not reserve the price of its template's dear
    /// ones. A group owes at most what the dear runs under way cost beyond the mean.
    #[default]
    Mean,
    /// About the 95th percentile: few statements end in a surcharge. Where a template's runs differ, most of what is
    /// reserved is refunded, and as much less of a group's burst is there for others while they run.
    P95,
}

/// What is known about a statement's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Exponentially weighted mean.
    pub mean: Ru,
    /// About the 95th percentile, never below the mean.
    pub p95: Ru,
    /// Runs behind the figures; zero for a price that nothing has confirmed yet.
    pub observations: u64,
}

/// Costs of statements, learned in each group per template and per kind. Shared between threads by reference.
pub struct Estimator {
    templates: Ways<Record>,
    kinds: Ways<Record>,
    /// Prices what a group has not run yet.
    table: CostTable,
    hasher: RandomState,
    aim: Aim,
}

/// Figures in 1/[`SCALE`] micro-RU, so that small changes are not lost to rounding.
#[derive(Clone, Copy, Debug)]
struct Record {
    mean: i128,
    p95: i128,
    /// Exponentially weighted distance of a run from `p95`.
    distance: i128,
    observations: u64,
}

/// Fixed-point units per micro-RU.
const SCALE: i128 = 256;
/// A new run moves the mean and the distance by 1/8 of the difference.
const WEIGHT: i128 = 8;
/// Steps of the percentile are 1/40 of the distance: one down, or nineteen up, which is about half of it.
const STEP: i128 = 40;
/// Ups per down at rest: 95 of 100 runs cost less.
const UP: i128 = 19;

impl Estimator {
    /// Most templates remembered, each once for every group that runs it. An entry takes 80 bytes.
    pub const MAX_TEMPLATES: usize = 32_768;
    /// Most kinds remembered, each once for every group.
    const MAX_KINDS: usize = 8_192;

    /// An estimator that knows nothing but the prices in `table`.
    pub fn new(table: &CostTable, aim: Aim) -> Self {
        Self {
            templates: Ways::new(Self::MAX_TEMPLATES),
            kinds: Ways::new(Self::MAX_KINDS),
            table: table.clone(),
            hasher: RandomState::default(),
            aim,
        }
    }

    /// What to charge `group` before a statement runs, 0 to [`Ru::MAX`].
    pub fn estimate(&self, group: &str, fingerprint: Fingerprint, kind: StatementKind) -> Ru {
        let forecast = self.forecast(group, fingerprint, kind);
        match self.aim {
            Aim::Mean => forecast.mean,
            Aim::P95 => forecast.p95,
        }
    }

    /// All that is known about a statement of `group`: from its template, else from its kind, else from the table.
    pub fn forecast(&self, group: &str, fingerprint: Fingerprint, kind: StatementKind) -> Forecast {
        let known = self.templates.get(self.key(group, fingerprint), |record| record.forecast());
        known
            .or_else(|| self.kinds.get(self.key(group, kind), |record| record.forecast()))
            .unwrap_or_else(|| self.guess(kind).forecast())
    }

    /// Learns what a run in `group` cost. An amount below zero counts as nothing, one above [`Ru::MAX`] as that.
    pub fn observe(&self, group: &str, fingerprint: Fingerprint, kind: StatementKind, actual: Ru) {
        let template = self.key(group, fingerprint);
        if self.templates.get(template, |record| record.observe(actual)).is_none() {
            self.templates.get_or_insert(template, || Record::first(actual), |_| ());
        }
        let of_kind = self.key(group, kind);
        self.kinds.get_or_insert(of_kind, || self.guess(kind), |record| record.observe(actual));
    }

    /// Templates remembered.
    pub fn templates(&self) -> usize {
        self.templates.len()
    }

    /// Templates given up for others since the start.
    pub fn evicted(&self) -> u64 {
        self.templates.evicted()
    }

    fn key(&self, group: &str, what: impl Hash) -> u64 {
        self.hasher.hash_one((group, what))
    }

    /// The table's price, as if it had been seen once.
    fn guess(&self, kind: StatementKind) -> Record {
        Record { observations: 0, ..Record::first(self.table.price(&kind.typical_usage()).total()) }
    }
}

impl Record {
    /// One run says nothing about the spread; half the cost is as good a first guess as TCP's.
    fn first(actual: Ru) -> Self {
        let cost = fixed(actual);
        Self { mean: cost, p95: cost + cost / 2, distance: cost / 2, observations: 1 }
    }

    fn observe(&mut self, actual: Ru) {
        let cost = fixed(actual);
        self.mean += (cost - self.mean) / WEIGHT;
        self.p95 += if cost > self.p95 { self.distance * UP / STEP } else { -self.distance / STEP };
        self.distance += ((cost - self.p95).abs() - self.distance) / WEIGHT;
        self.observations = self.observations.saturating_add(1);
    }

    fn forecast(&self) -> Forecast {
        Forecast {
            mean: rounded_up(self.mean),
            p95: rounded_up(self.mean.max(self.p95)),
            observations: self.observations,
        }
    }
}

/// A cost in fixed point.
fn fixed(actual: Ru) -> i128 {
    i128::from(actual.or_zero().min(Ru::MAX).0) * SCALE
}

/// Fixed point to micro-RU: a charge rounds up.
fn rounded_up(fixed: i128) -> Ru {
    let micro = (fixed.max(0) + SCALE - 1) / SCALE;
    Ru(i64::try_from(micro).unwrap_or(Ru::MAX.0)).min(Ru::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GROUP: &str = "shop";
    const POINT: Fingerprint = Fingerprint(1);
    const SELECT: StatementKind = StatementKind::Select;

    fn estimator(aim: Aim) -> Estimator {
        Estimator::new(&CostTable::tidb_v1(), aim)
    }

    #[test]
    fn a_template_falls_back_to_its_kind_and_a_kind_to_the_table() {
        let estimator = estimator(Aim::Mean);
        let table = CostTable::tidb_v1();
        for kind in StatementKind::ALL {
            let priced = table.price(&kind.typical_usage()).total();
            assert_eq!(estimator.estimate(GROUP, POINT, kind), priced, "{kind}");
            assert_eq!(estimator.forecast(GROUP, POINT, kind).observations, 0);
        }
        estimator.observe(GROUP, Fingerprint(2), SELECT, Ru::whole(7));
        assert_eq!(estimator.estimate(GROUP, Fingerprint(2), SELECT), Ru::whole(7));
        let of_kind = estimator.forecast(GROUP, POINT, SELECT);
        let price = table.price(&SELECT.typical_usage()).total();
        let moved = price + (Ru::whole(7) - price).scale(1, 8);
        assert!((0..=1).contains(&(of_kind.mean - moved).0), "one run moves the table's price: {of_kind:?}");
        assert_eq!(of_kind.observations, 1);
        estimator.observe(GROUP, POINT, SELECT, Ru::whole(100));
        assert_eq!(estimator.estimate(GROUP, POINT, SELECT), Ru::whole(100));
        assert_eq!(estimator.estimate(GROUP, Fingerprint(2), SELECT), Ru::whole(7), "templates do not mix");
        assert_eq!(estimator.templates(), 2);
    }

    /// The percentile begins half a cost above the first run. One at the percentile does not raise it.
    #[test]
    fn the_first_runs_move_the_percentile_by_steps_of_its_distance() {
        let estimator = estimator(Aim::P95);
        let p95 = || estimator.forecast(GROUP, POINT, SELECT).p95;
        estimator.observe(GROUP, POINT, SELECT, Ru::whole(100));
        assert_eq!(p95(), Ru::whole(150));
        estimator.observe(GROUP, POINT, SELECT, Ru::whole(150));
        assert_eq!(p95(), Ru(148_750_000), "a fortieth of the distance, 50, down");
        estimator.observe(GROUP, POINT, SELECT, Ru::whole(200));
        // The distance is 50 - (50 - 1.25) / 8 by now.
        let up = (148_750_000 + 43_906_250 * 19 / 40)..=(148_750_000 + 43_906_250 * 19 / 40 + 1);
        assert!(up.contains(&p95().0), "nineteen fortieths up: {}", p95());
    }

    #[test]
    fn what_a_group_runs_changes_no_other_group_s_estimates() {
        let estimator = estimator(Aim::P95);
        let before = estimator.forecast("small", POINT, SELECT);
        for cost in [300, 3_000, 1] {
            estimator.observe(GROUP, POINT, SELECT, Ru::whole(cost));
            estimator.observe(GROUP, Fingerprint(2), SELECT, Ru::whole(cost));
        }
        assert_eq!(
            estimator.forecast("small", POINT, SELECT),
            before,
            "neither by its template nor by its kind"
        );
        estimator.observe("small", POINT, SELECT, Ru::whole(2));
        assert_eq!(estimator.forecast("small", POINT, SELECT).mean, Ru::whole(2));
        assert!(estimator.forecast(GROUP, POINT, SELECT).mean > Ru::whole(300));
    }

    #[test]
    fn a_runaway_is_soon_forgotten_by_what_its_group_has_not_run_yet() {
        let estimator = estimator(Aim::P95);
        estimator.observe(GROUP, Fingerprint(2), SELECT, Ru::whole(320));
        assert!(estimator.estimate(GROUP, POINT, SELECT) < Ru::whole(41), "an eighth of it");
        for _ in 0..20 {
            estimator.observe(GROUP, Fingerprint(3), SELECT, Ru::whole(1));
        }
        assert!(estimator.estimate(GROUP, POINT, SELECT) < Ru::whole(10));
    }

    /// A template that is new to its group has the percentile of its kind, too, not the mean twice.
    #[test]
    fn a_kind_has_a_percentile_of_its_own() {
        let (of_mean, of_p95) = (estimator(Aim::Mean), estimator(Aim::P95));
        for cost in noise().take(2_000).map(|cost| Ru(1_000_000 + cost * 100)) {
            of_mean.observe(GROUP, Fingerprint(2), SELECT, cost);
            of_p95.observe(GROUP, Fingerprint(2), SELECT, cost);
        }
        let forecast = of_p95.forecast(GROUP, POINT, SELECT);
        assert!(forecast.p95 > forecast.mean.scale(3, 2), "costs are even from 1 to 7.6: {forecast:?}");
        assert_eq!(of_p95.estimate(GROUP, POINT, SELECT), forecast.p95);
        assert!(of_mean.estimate(GROUP, POINT, SELECT) < forecast.p95);
    }

    /// There is room for fewer kinds than templates, so that a kind may be given up while its templates are known.
    #[test]
    fn a_kind_that_was_given_up_is_learnt_again_from_templates_that_are_known() {
        let estimator = estimator(Aim::Mean);
        let groups: Vec<_> = (0..Estimator::MAX_KINDS + 2_000).map(|group| group.to_string()).collect();
        for _ in 0..2 {
            for group in &groups {
                estimator.observe(group, POINT, SELECT, Ru::whole(1_000));
                assert!(
                    estimator.estimate(group, Fingerprint(2), SELECT) > Ru::whole(100),
                    "{group}: a new template of the kind is taken for what the group runs"
                );
            }
        }
        assert!(estimator.templates() > Estimator::MAX_KINDS + 1_000, "nearly all templates are known");
    }

    #[test]
    fn steady_costs_converge_and_a_change_is_followed() {
        let estimator = estimator(Aim::P95);
        for cost in [5, 50, 2] {
            let cost = Ru::whole(cost);
            for _ in 0..500 {
                estimator.observe(GROUP, POINT, SELECT, cost);
            }
            let forecast = estimator.forecast(GROUP, POINT, SELECT);
            assert!((forecast.mean - cost).0.abs() < 10, "{cost}: {forecast:?}");
            assert!(forecast.p95 >= cost && forecast.p95 < cost.scale(101, 100), "{cost}: {forecast:?}");
        }
    }

    /// Pseudo-random numbers below 2^16, the same each time (Knuth's MMIX generator).
    fn noise() -> impl Iterator<Item = i64> {
        let mut state: u64 = 7;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from(state >> 48).unwrap()
        })
    }

    #[test]
    fn p95_covers_nineteen_runs_of_twenty_whatever_their_spread() {
        let even: fn(i64) -> i64 = |x| 1_000_000 + x * 10;
        let long_tail: fn(i64) -> i64 = |x| 1_000_000 + (x * x / 65_536) * (x * x / 65_536) / 655;
        let two_costs: fn(i64) -> i64 = |x| if x % 4 == 0 { 9_000_000 } else { 500_000 };
        for (name, shape) in [("even", even), ("long tail", long_tail), ("two costs", two_costs)] {
            let estimator = estimator(Aim::P95);
            let mut covered = 0;
            for cost in noise().take(10_000).map(shape).map(Ru) {
                covered += i32::from(cost <= estimator.estimate(GROUP, POINT, SELECT));
                estimator.observe(GROUP, POINT, SELECT, cost);
            }
            assert!((9_200..=9_800).contains(&covered), "{name}: {covered} of 10000");
        }
    }

    #[test]
    fn templates_are_bounded_and_evictions_counted() {
        let estimator = estimator(Aim::Mean);
        let more = 3 * u64::try_from(Estimator::MAX_TEMPLATES).unwrap();
        for template in 0..more {
            estimator.observe(GROUP, Fingerprint(template), SELECT, Ru::whole(1));
        }
        assert!(estimator.templates() <= Estimator::MAX_TEMPLATES);
        assert_eq!(estimator.evicted() + u64::try_from(estimator.templates()).unwrap(), more);
    }

    proptest! {
        #[test]
        fn a_forecast_stays_between_the_costs_seen(costs in prop::collection::vec(any::<i64>(), 1..200)) {
            let estimator = estimator(Aim::Mean);
            for cost in &costs {
                estimator.observe(GROUP, POINT, SELECT, Ru(*cost));
            }
            let seen = |cost: &i64| Ru(*cost).or_zero().min(Ru::MAX);
            let forecast = estimator.forecast(GROUP, POINT, SELECT);
            prop_assert!(forecast.mean >= costs.iter().map(seen).min().unwrap());
            prop_assert!(forecast.mean <= costs.iter().map(seen).max().unwrap());
            prop_assert!(forecast.mean <= forecast.p95 && forecast.p95 <= Ru::MAX);
        }
    }
}
