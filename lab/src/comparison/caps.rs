//! The cap of a run: RU/s, by the time it is set.

use tidegate_core::units::{Span, Time};

/// Caps in the order of their times; the first is set at the start.
#[derive(Clone, Debug)]
pub struct Caps(Vec<(Time, u64)>);

impl Caps {
    /// A cap from the start on, in RU/s, and later ones.
    pub fn new(first: u64, later: impl IntoIterator<Item = (Time, u64)>) -> Self {
        Self(std::iter::once((Time(0), first)).chain(later).collect())
    }

    /// All caps with the times they are set at.
    pub fn steps(&self) -> &[(Time, u64)] {
        &self.0
    }

    /// The largest cap, in RU/s: one second of it is the burst.
    pub fn largest(&self) -> u64 {
        self.0.iter().map(|(_, rate)| *rate).max().unwrap_or_default()
    }

    /// The same, but that a lowered cap waits until the leases that are out have ended.
    #[must_use]
    pub fn lowered_after(&self, lease: Span) -> Self {
        let mut before = 0;
        let later = self.0.iter().map(|(at, rate)| {
            let lowers = *rate < std::mem::replace(&mut before, *rate);
            (if lowers { at.after(lease) } else { *at }, *rate)
        });
        Self(later.collect())
    }

    /// RU that the cap yields between two moments.
    pub fn over(&self, from: Time, to: Time) -> f64 {
        let ends = self.0.iter().skip(1).map(|(at, _)| *at).chain([Time(u64::MAX)]);
        let micro_ru = self.0.iter().zip(ends).map(|((start, rate), end)| {
            let step = end.min(to).since((*start).max(from)).0;
            u128::from(*rate) * u128::from(step)
        });
        super::measures::float(micro_ru.sum::<u128>()) / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_cap_yields_by_the_time_it_held() {
        let caps = Caps::new(10, [(Time(2_000_000), 20), (Time(4_000_000), 5)]);
        assert_eq!(caps.over(Time(1_000_000), Time(6_000_000)), 10.0 + 40.0 + 10.0);
        assert_eq!(caps.over(Time(2_500_000), Time(3_000_000)), 10.0);
        assert_eq!(caps.largest(), 20);
        let later = caps.lowered_after(Span::secs(3));
        assert_eq!(later.steps(), [(Time(0), 10), (Time(2_000_000), 20), (Time(7_000_000), 5)]);
    }
}
