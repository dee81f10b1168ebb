//! The slots of a group: how its fill rate, burst and new tokens are split among its clients.

use std::collections::BTreeMap;

use tidegate_core::units::{Span, Time};

use super::bucket::Mode;
use super::tracker::Tracker;
use crate::rivals::number::count;

/// A slot without a request for this long is removed.
const EXPIRES: Span = Span::secs(600);

/// One client's part of the group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slot {
    /// RU/s, a whole number.
    pub fill: f64,
    /// RU, a whole number, or a mode when not positive.
    pub burst: f64,
    /// Tokens; negative is what was lent.
    pub tokens: f64,
    pub(super) settled: f64,
    asked_at: Time,
}

/// What is to be split.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    pub(super) mode: Mode,
    pub(super) fill: f64,
    pub(super) burst: f64,
    /// Tokens that came in since the last request.
    pub(super) income: f64,
}

/// Slots by client.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(pub(super) BTreeMap<u64, Slot>);

impl Slots {
    /// A client asks: makes or removes its slot, and forgets those that expired.
    pub(super) fn touch(&mut self, now: Time, client: u64, required: f64) {
        if required == 0.0 {
            self.0.remove(&client);
        } else {
            self.0.entry(client).or_default().asked_at = now;
        }
        self.0.retain(|_, slot| now.since(slot.asked_at) < EXPIRES);
    }

    /// Forgives all loans.
    pub(super) fn reset(&mut self) {
        for slot in self.0.values_mut() {
            slot.tokens = 0.0;
            slot.settled = 0.0;
        }
    }

    /// Splits the group among its slots. Returns what full slots give back, for later.
    pub(super) fn balance(
        &mut self,
        whole: Whole,
        tokens: &mut f64,
        trackers: &BTreeMap<u64, Tracker>,
    ) -> f64 {
        let n = count(self.0.len());
        if matches!(whole.mode, Mode::RateControlled | Mode::Unlimited) {
            for slot in self.0.values_mut() {
                slot.fill = (whole.fill / n).trunc();
                slot.burst = whole.burst;
            }
            return 0.0;
        }
        if whole.fill == 0.0 && self.0.len() != 1 {
            *tokens = 0.0;
            self.reset();
            for slot in self.0.values_mut() {
                slot.fill = 0.0;
                slot.burst = 0.0;
            }
            return 0.0;
        }
        if self.0.len() == 1 {
            for slot in self.0.values_mut() {
                slot.fill = whole.fill.trunc();
                slot.burst = whole.burst.trunc();
                slot.tokens = if whole.fill == 0.0 { 0.0 } else { *tokens };
                slot.settled = slot.tokens;
            }
            return 0.0;
        }
        let shares = self.shares(whole.fill, trackers);
        let mut given_back = 0.0;
        for (slot, share) in self.0.values_mut().zip(shares) {
            let ratio = share / whole.fill;
            let burst = whole.burst * ratio;
            let mut assigned = whole.income * ratio;
            if burst > 0.0 && slot.tokens > burst {
                let over = slot.tokens - burst;
                given_back += over;
                *tokens -= over;
                assigned -= over;
            }
            slot.tokens += assigned;
            slot.settled += assigned;
            slot.fill = share.trunc();
            slot.burst = burst.trunc();
        }
        given_back
    }

    /// RU/s of every slot, in the order of the clients: an equal part at most, and what that leaves to those who want
    /// more, in proportion to how much more.
    fn shares(&self, fill: f64, trackers: &BTreeMap<u64, Tracker>) -> Vec<f64> {
        let n = count(self.0.len());
        let basic = fill / n;
        let demand = |client: &u64| trackers.get(client).and_then(Tracker::demand);
        // A client that is not known yet counts as if it wanted its equal part.
        let demands: Vec<f64> = self.0.keys().map(|client| demand(client).unwrap_or(basic)).collect();
        let extra = |demand: f64| (demand - basic).max(0.0);
        let extras: f64 = demands.iter().map(|demand| extra(*demand)).sum();
        let left = fill - demands.iter().map(|demand| demand.min(basic)).sum::<f64>();
        let more = |demand: f64| match () {
            () if left <= 0.0 => 0.0,
            () if extras > 0.0 => left * extra(demand) / extras,
            () => left / n,
        };
        demands.iter().map(|demand| demand.min(basic) + more(*demand)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balanced(fill: f64, demands: &[f64]) -> Vec<f64> {
        let mut slots = Slots::default();
        let mut trackers = BTreeMap::new();
        for (client, demand) in (0..).zip(demands) {
            slots.touch(Time(0), client, 1.0);
            let mut tracker = Tracker::default();
            tracker.sample(Time(0), 0.0);
            tracker.sample(Time(1_000_000), *demand);
            trackers.insert(client, tracker);
        }
        let whole = Whole { mode: Mode::Limited, fill, burst: fill, income: 0.0 };
        slots.balance(whole, &mut 0.0, &trackers);
        slots.0.values().map(|slot| slot.fill).collect()
    }

    /// Conformance row T8.
    #[test]
    fn t8_allocation() {
        assert_eq!(balanced(180.0, &[80.0, 30.0, 70.0]), [80.0, 30.0, 70.0]);
        assert_eq!(balanced(180.0, &[15.0, 120.0, 45.0]), [15.0, 120.0, 45.0]);
        assert_eq!(balanced(180.0, &[10.0, 10.0, 10.0]), [60.0, 60.0, 60.0]);
        assert_eq!(balanced(90.0, &[60.0, 60.0, 60.0]), [30.0, 30.0, 30.0]);
    }

    /// The loss by truncation that the comparison shows: 64 clients, and fewer RU/s than clients.
    #[test]
    fn shares_are_cut_to_whole_numbers() {
        assert_eq!(balanced(1_000.0, &[100.0; 64]).iter().sum::<f64>(), 64.0 * 15.0);
        assert_eq!(balanced(5.0, &[9.0; 8]), [0.0; 8]);
    }

    /// Conformance row T11: a slot goes after ten minutes without a request.
    #[test]
    fn t11_slots_expire() {
        let mut slots = Slots::default();
        (0..10).for_each(|client| slots.touch(Time(0), client, 100.0));
        slots.touch(Time(599_000_000), 0, 100.0);
        assert_eq!(slots.0.len(), 10);
        slots.touch(Time(601_000_000), 0, 100.0);
        assert_eq!(slots.0.len(), 1);
    }
}
