//! Weighted max-min fairness: divides a capacity among members by a water level.
//!
//! Every member has a demand and a weight. The level `λ` is the one at which `Σ min(demand, weight·λ)` equals the
//! capacity; a member gets `min(demand, weight·λ)`, and everyone gets their demand when the demands fit.
//!
//! Method: members are kept in the order of the level that would satisfy them, with a pivot between the satisfied
//! and the others and running sums on both sides. A changed demand moves the pivot by a few members, so a decision
//! costs O(log n) and never a walk over all members.
//! Source: max-min fair allocation by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2).

use std::collections::{BTreeMap, BTreeSet};

use crate::units::clamp_i64;

/// Levels carry this many fractional units, so that weights do not cost precision.
const SCALE: i128 = 1 << 20;

/// Divides `capacity` among members keyed by `K`. Demands, capacity and shares are micro-RU per second.
#[derive(Clone, Debug, Hash)]
pub(crate) struct WaterFill<K> {
    capacity: i64,
    members: BTreeMap<K, Member>,
    /// Members not yet satisfied, and satisfied ones, each by the level that satisfies them.
    high: BTreeSet<(i128, K)>,
    low: BTreeSet<(i128, K)>,
    low_demand: i128,
    high_weight: i128,
    demand: i128,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Member {
    demand: i64,
    weight: i64,
}

impl Member {
    fn level(self) -> i128 {
        i128::from(self.demand) * SCALE / i128::from(self.weight)
    }
}

impl<K> Default for WaterFill<K> {
    fn default() -> Self {
        Self {
            capacity: 0,
            members: BTreeMap::new(),
            high: BTreeSet::new(),
            low: BTreeSet::new(),
            low_demand: 0,
            high_weight: 0,
            demand: 0,
        }
    }
}

impl<K: Ord + Copy> WaterFill<K> {
    /// Sets a member's demand and weight (at least 1).
    pub(crate) fn set(&mut self, key: K, demand: i64, weight: i64) {
        let member = Member { demand: demand.max(0), weight: weight.max(1) };
        if self.members.get(&key).is_some_and(|m| m.demand == member.demand && m.weight == member.weight) {
            return;
        }
        self.remove(key);
        self.members.insert(key, member);
        self.demand += i128::from(member.demand);
        self.high.insert((member.level(), key));
        self.high_weight += i128::from(member.weight);
        self.settle();
    }

    /// Removes a member.
    pub(crate) fn remove(&mut self, key: K) {
        let Some(member) = self.members.remove(&key) else {
            return;
        };
        self.demand -= i128::from(member.demand);
        if self.low.remove(&(member.level(), key)) {
            self.low_demand -= i128::from(member.demand);
        } else {
            self.high.remove(&(member.level(), key));
            self.high_weight -= i128::from(member.weight);
        }
        self.settle();
    }

    /// Sets what is divided.
    pub(crate) fn set_capacity(&mut self, capacity: i64) {
        if self.capacity != capacity {
            self.capacity = capacity;
            self.settle();
        }
    }

    /// What a member gets; zero for a stranger.
    pub(crate) fn share(&self, key: K) -> i64 {
        let Some(member) = self.members.get(&key) else {
            return 0;
        };
        if self.low.contains(&(member.level(), key)) {
            return member.demand;
        }
        let spare = (i128::from(self.capacity) - self.low_demand).max(0);
        let share = spare * i128::from(member.weight) / self.high_weight.max(1);
        clamp_i64(share).min(member.demand)
    }

    /// Sum of all demands.
    pub(crate) fn demand(&self) -> i64 {
        clamp_i64(self.demand)
    }

    /// What all members get together.
    pub(crate) fn given(&self) -> i64 {
        self.demand().min(self.capacity.max(0))
    }

    /// Number of members.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    fn level(&self) -> Option<i128> {
        let spare = i128::from(self.capacity) - self.low_demand;
        if spare < 0 {
            return Some(-1);
        }
        (self.high_weight > 0).then(|| spare * SCALE / self.high_weight)
    }

    /// Moves the pivot to where the level is: first back, then forward, so that rounding cannot make it oscillate.
    fn settle(&mut self) {
        while let Some(&(level, key)) = self.low.last() {
            if self.level().is_none_or(|now| level <= now) {
                break;
            }
            self.shift(level, key, false);
        }
        while let Some(&(level, key)) = self.high.first() {
            if self.level().is_none_or(|now| level > now) {
                break;
            }
            self.shift(level, key, true);
        }
    }

    fn shift(&mut self, level: i128, key: K, satisfied: bool) {
        let Some(member) = self.members.get(&key) else {
            return;
        };
        let (demand, weight) = (i128::from(member.demand), i128::from(member.weight));
        if satisfied {
            self.high.remove(&(level, key));
            self.low.insert((level, key));
            self.low_demand += demand;
            self.high_weight -= weight;
        } else {
            self.low.remove(&(level, key));
            self.high.insert((level, key));
            self.low_demand -= demand;
            self.high_weight += weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, slowly: raise the level until the capacity is used, by bisection over all members.
    fn oracle(members: &BTreeMap<u8, (i64, i64)>, capacity: i64, key: u8) -> f64 {
        let (demand, weight) = members[&key];
        let total: f64 = members.values().map(|m| m.0 as f64).sum();
        if total <= capacity as f64 {
            return demand as f64;
        }
        let (mut low, mut high) = (0.0_f64, 1e18);
        for _ in 0..200 {
            let level = f64::midpoint(low, high);
            let used: f64 = members.values().map(|m| (m.0 as f64).min(m.1 as f64 * level)).sum();
            if used > capacity as f64 { high = level } else { low = level }
        }
        (demand as f64).min(weight as f64 * low)
    }

    #[derive(Clone, Debug)]
    enum Op {
        Set(u8, i64, i64),
        Remove(u8),
        Capacity(i64),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            4 => (0_u8..12, 0_i64..1_000_000_000, 1_i64..20).prop_map(|(k, d, w)| Op::Set(k, d, w)),
            1 => (0_u8..12).prop_map(Op::Remove),
            1 => (0_i64..5_000_000_000).prop_map(Op::Capacity),
        ];
        prop::collection::vec(op, 1..80)
    }

    proptest! {
        #[test]
        fn shares_match_the_definition_after_every_operation(ops in ops()) {
            let mut fill = WaterFill::default();
            let mut model = BTreeMap::new();
            let mut capacity = 0;
            for op in ops {
                match op {
                    Op::Set(k, d, w) => { fill.set(k, d, w); model.insert(k, (d, w)); }
                    Op::Remove(k) => { fill.remove(k); model.remove(&k); }
                    Op::Capacity(c) => { fill.set_capacity(c); capacity = c; }
                }
                let mut sum = 0_i128;
                for &key in model.keys() {
                    let share = fill.share(key);
                    sum += i128::from(share);
                    let ideal = oracle(&model, capacity, key);
                    prop_assert!((share as f64 - ideal).abs() <= 64.0, "{key}: {share} is not {ideal}");
                }
                prop_assert!(sum <= i128::from(capacity) + 1);
            }
        }
    }
}
