//! RU/s of the last few seconds, from the reports of nodes.
//!
//! A ring of one-second sums over [`WINDOW_S`] full seconds. Nodes report about once a second, so the mean over five
//! is steady and still follows a change quickly.

use tidegate_core::units::{MICRO, Rate, Ru, Time};

/// Seconds in the average.
pub const WINDOW_S: u64 = 5;

/// The full seconds and the current one.
const SLOTS: usize = 6;

/// Recent consumption of one group, or of one node in one group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live {
    /// Each second, with the RU reported in it.
    slots: [(u64, Ru); SLOTS],
}

impl Live {
    /// Counts a report at `now`.
    pub fn add(&mut self, now: Time, amount: Ru) {
        let second = second(now);
        let Some(slot) = usize::try_from(second % (WINDOW_S + 1)).ok().and_then(|at| self.slots.get_mut(at))
        else {
            return;
        };
        if slot.0 != second {
            *slot = (second, Ru::ZERO);
        }
        slot.1 += amount;
    }

    /// The mean rate over the last full seconds.
    pub fn rate(&self, now: Time) -> Rate {
        let second = second(now);
        let full = self.slots.iter().filter(|(at, _)| *at < second && second <= at.saturating_add(WINDOW_S));
        let sum: Ru = full.map(|(_, amount)| *amount).sum();
        Rate(sum.scale(1, WINDOW_S.cast_signed()).0)
    }

    /// Whether nothing was reported lately.
    pub fn is_idle(&self, now: Time) -> bool {
        let second = second(now);
        self.slots.iter().all(|(at, amount)| !amount.is_positive() || at.saturating_add(WINDOW_S) < second)
    }
}

/// The second of a moment.
pub(crate) fn second(now: Time) -> u64 {
    now.0 / MICRO.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_mean_of_full_seconds() {
        let mut live = Live::default();
        for second in 10..30 {
            live.add(Time(second * 1_000_000 + 500_000), Ru::whole(40));
        }
        assert_eq!(live.rate(Time(30_000_000)), Rate::whole(40));
        assert_eq!(live.rate(Time(32_000_000)), Rate::whole(24));
        assert_eq!(live.rate(Time(36_000_000)), Rate::ZERO);
        assert!(live.is_idle(Time(36_000_000)) && !live.is_idle(Time(30_000_000)));
    }
}
