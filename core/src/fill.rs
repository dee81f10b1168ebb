//! Weighted max-min fairness: divides a capacity among members by a water level.
//!
//! Every member has a demand and a weight. The level `λ` is the one at which `Σ min(demand, weight·λ)` equals the
//! capacity; a member gets `min(demand, weight·λ)`, and everyone gets their demand when the demands fit.
//!
//! Method: members are kept in the order of the level that would satisfy them, with sums of demands and weights
//! (`ordered.rs`). The sums of the members before one show whether the level covers it, and the covered ones come
//! first, so that one descent finds the level: a decision costs O(log n) however the demands change.

use crate::ordered::{Item, Ordered, Sum};
use crate::units::clamp_i64;

/// Levels carry this many fractional bits, so that weights do not cost precision.
const FINE: u32 = 20;

/// Divides a capacity among members keyed by `K`. Demands, capacity and shares are micro-RU per second. The caller
/// keeps each member's entry beside what else it knows of the member.
#[derive(Clone, Debug, Hash)]
pub(crate) struct WaterFill<K> {
    members: Ordered<K>,
    len: usize,
    sum: Sum,
}

/// A member's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    demand: i64,
    weight: i64,
}

impl Member {
    /// A demand of at least zero and a weight of at least one.
    pub(crate) fn new(demand: i64, weight: i64) -> Self {
        Self { demand: demand.max(0), weight: weight.max(1) }
    }

    fn level(self) -> i128 {
        let demand = i128::from(self.demand) << FINE;
        if self.weight == 1 { demand } else { demand / i128::from(self.weight) }
    }

    fn sum(self) -> Sum {
        Sum { demand: i128::from(self.demand), weight: i128::from(self.weight) }
    }
}

impl<K> WaterFill<K> {
    pub(crate) const fn new() -> Self {
        Self { members: Ordered::new(), len: 0, sum: Sum { demand: 0, weight: 0 } }
    }

    /// Sum of all demands.
    pub(crate) fn demand(&self) -> i64 {
        clamp_i64(self.sum.demand)
    }

    /// The sum of all shares.
    pub(crate) fn given(&self, capacity: i64) -> i64 {
        self.demand().min(capacity.max(0))
    }

    /// Number of members.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl<K: Ord + Copy> WaterFill<K> {
    /// Adds a member, changes its entry from `before`, or removes it.
    pub(crate) fn change(&mut self, key: K, before: Option<Member>, after: Option<Member>) {
        if before == after {
            return;
        }
        if let Some(member) = before
            && self.members.remove(member.level(), key)
        {
            self.sum = self.sum.minus(member.sum());
            self.len -= 1;
        }
        if let Some(member) = after {
            let Member { demand, weight } = member;
            self.members.insert(Item { level: member.level(), key, demand, weight });
            self.sum = self.sum.plus(member.sum());
            self.len += 1;
        }
    }

    /// Whether exactly these are its members, and its sums are theirs.
    pub(crate) fn is_of(&self, members: impl Iterator<Item = (K, Member)>) -> bool {
        let item = |(key, member): (K, Member)| {
            let Member { demand, weight } = member;
            Item { level: member.level(), key, demand, weight }
        };
        let mut items: Vec<Item<K>> = members.map(item).collect();
        items.sort_by_key(|item| (item.level, item.key));
        let sum = items.iter().fold(Sum::default(), |sum, item| sum.plus(item.sum()));
        (self.len, self.sum) == (items.len(), sum) && self.members.is_of(&items)
    }

    /// A member's share of `capacity`.
    pub(crate) fn share(&self, key: K, member: Member, capacity: i64) -> i64 {
        let capacity = i128::from(capacity);
        if self.sum.demand <= capacity {
            return member.demand;
        }
        // Demands stay below 2^63, weights below 2^63 for levels up to 2^20 and below 2^14 for others: no overflow.
        let under = |level: i128, before: Sum| {
            (before.demand << FINE) + level * (self.sum.weight - before.weight) <= capacity << FINE
        };
        let (satisfied, end) = self.members.dive(under);
        if end.is_none_or(|end| (member.level(), key) < end) {
            return member.demand;
        }
        let spare = (capacity - satisfied.demand).max(0);
        let share = spare * i128::from(member.weight) / (self.sum.weight - satisfied.weight).max(1);
        clamp_i64(share).min(member.demand)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The definition, evaluated slowly: bisects over the level until all shares use up the capacity.
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
            let mut fill = WaterFill::new();
            let mut model = BTreeMap::new();
            let mut capacity = 0;
            let member = |model: &BTreeMap<u8, (i64, i64)>, key: u8| model.get(&key).map(|(d, w)| Member::new(*d, *w));
            for op in ops {
                match op {
                    Op::Set(k, d, w) => {
                        fill.change(k, member(&model, k), Some(Member::new(d, w)));
                        model.insert(k, (d, w));
                    }
                    Op::Remove(k) => {
                        fill.change(k, member(&model, k), None);
                        model.remove(&k);
                    }
                    Op::Capacity(c) => capacity = c,
                }
                prop_assert_eq!(fill.len(), model.len());
                let mut sum = 0_i128;
                for &key in model.keys() {
                    let share = fill.share(key, member(&model, key).unwrap(), capacity);
                    sum += i128::from(share);
                    let ideal = oracle(&model, capacity, key);
                    prop_assert!((share as f64 - ideal).abs() <= 64.0, "{key}: {share} is not {ideal}");
                }
                prop_assert!(sum <= i128::from(capacity) + 1);
            }
        }
    }
}
