//! What is measured of a simulated group: RU admitted, the worst window, waits, fairness.

use std::collections::BTreeMap;

use tidegate_core::units::{Rate, Ru, Span, Time};

/// How much a window may pass its bound because clocks are read in whole microseconds: a node whose clock is fast may see
/// one more than there was.
pub fn tick(rate: Rate) -> Ru {
    rate.over(Span(1)) + Ru(1)
}

/// The worst excess of admitted RU over `rate * window`, over all windows, found as the highest rise of
/// `admitted − rate·t` above its lowest point before. With a depth, also the worst excess over `rate * window` and the
/// depth at the beginning of the window.
#[derive(Clone, Debug)]
pub struct Bound {
    rate: Rate,
    since: Time,
    /// Rate integrated until `since`, in micro-RU times microseconds per second.
    allowed: i128,
    admitted: i128,
    lowest: i128,
    lowest_at: Time,
    worst: i128,
    worst_window: Span,
    /// Depth of the bucket, the lowest point with it on top, and the highest rise above that.
    depth: i128,
    floor: i128,
    excess: i128,
}

impl Bound {
    /// Watches a group with this cap.
    pub fn new(now: Time, rate: Rate) -> Self {
        Self {
            rate,
            since: now,
            allowed: 0,
            admitted: 0,
            lowest: 0,
            lowest_at: now,
            worst: 0,
            worst_window: Span(0),
            depth: 0,
            floor: 0,
            excess: 0,
        }
    }

    fn level(&mut self, now: Time) -> i128 {
        self.allowed += i128::from(self.rate.0) * i128::from(now.since(self.since).0);
        self.since = self.since.max(now);
        self.admitted * 1_000_000 - self.allowed
    }

    /// RU were admitted, or given back when negative.
    pub fn admit(&mut self, now: Time, cost: Ru) {
        self.may_begin(now);
        self.admitted += i128::from(cost.0);
        let level = self.level(now);
        self.excess = self.excess.max(level - self.floor);
        let rise = level - self.lowest;
        if rise > self.worst {
            (self.worst, self.worst_window) = (rise, now.since(self.lowest_at));
        }
    }

    /// A window may begin now.
    fn may_begin(&mut self, now: Time) {
        let level = self.level(now);
        if level <= self.lowest {
            (self.lowest, self.lowest_at) = (level, now);
        }
        self.floor = self.floor.min(level + self.depth);
    }

    /// The cap changed.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        self.may_begin(now);
        self.rate = rate;
    }

    /// The cap changed, and the depth with it; in windows that include this moment so much more may be admitted.
    pub fn set_cap(&mut self, now: Time, rate: Rate, depth: Ru, more: Ru) {
        self.set_rate(now, rate);
        self.depth = i128::from(depth.0) * 1_000_000;
        self.allowed += i128::from(more.0) * 1_000_000;
        self.may_begin(now);
    }

    /// Windows begin now at the soonest from here on.
    pub fn begin_again(&mut self, now: Time) {
        (self.lowest, self.lowest_at) = (self.level(now), now);
        self.floor = self.lowest + self.depth;
    }

    /// RU above `rate * window` and the depth at its beginning, in the worst window.
    pub fn excess(&self) -> Ru {
        Ru(i64::try_from(self.excess / 1_000_000).unwrap_or(i64::MAX))
    }

    /// RU above `rate * window` in the worst window.
    pub fn worst(&self) -> Ru {
        Ru(i64::try_from(self.worst / 1_000_000).unwrap_or(i64::MAX))
    }

    /// The length of the worst window.
    pub fn worst_window(&self) -> Span {
        self.worst_window
    }

    /// RU admitted in all.
    pub fn admitted(&self) -> Ru {
        Ru(i64::try_from(self.admitted).unwrap_or(i64::MAX))
    }

    /// RU that the cap allowed in all.
    pub fn allowed(&mut self, now: Time) -> Ru {
        self.level(now);
        Ru(i64::try_from(self.allowed / 1_000_000).unwrap_or(i64::MAX))
    }
}

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
