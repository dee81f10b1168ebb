//! What is measured of a simulated group beside its bound: waits, fairness.

use std::collections::BTreeMap;

use tidegate_core::units::{Ru, Span};

/// Waits of one kind of load, and its outcomes.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    counts: BTreeMap<u64, u64>,
    /// Operations admitted, refused, and RU admitted.
    pub admitted: u64,
    /// Operations refused or timed out.
    pub refused: u64,
    /// RU admitted by node.
    pub by_node: BTreeMap<usize, Ru>,
    /// Operations admitted by node.
    pub count_by_node: BTreeMap<usize, u64>,
}

impl Waits {
    /// An operation was admitted after this wait.
    pub fn admit(&mut self, node: usize, cost: Ru, wait: Span) {
        // Two significant digits are enough, and keep the map small.
        let scale = 10_u64.pow(wait.0.checked_ilog10().unwrap_or(0).saturating_sub(1));
        *self.counts.entry(wait.0 / scale * scale).or_default() += 1;
        self.admitted += 1;
        *self.by_node.entry(node).or_default() += cost;
        *self.count_by_node.entry(node).or_default() += 1;
    }

    /// The wait that this share (in thousandths) of the admitted operations did not exceed.
    pub fn quantile(&self, thousandths: u64) -> Span {
        let rank = self.admitted * thousandths / 1_000;
        let mut seen = 0;
        for (wait, count) in &self.counts {
            seen += count;
            if seen > rank {
                return Span(*wait);
            }
        }
        self.counts.last_key_value().map_or(Span(0), |(wait, _)| Span(*wait))
    }

    /// Jain's index of the RU by node, in thousandths: 1000 is equal shares.
    pub fn jain(&self) -> u64 {
        let shares: Vec<i128> = self.by_node.values().map(|ru| i128::from(ru.0 / 1_000)).collect();
        let sum: i128 = shares.iter().sum();
        let squares: i128 = shares.iter().map(|share| share * share).sum();
        let n = i128::try_from(shares.len()).unwrap_or(1);
        u64::try_from(sum * sum * 1_000 / (n * squares).max(1)).unwrap_or(0)
    }
}
