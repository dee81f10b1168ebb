//! RU admitted in each second.

use std::fmt;

use tidegate_core::units::{Ru, Time};

/// Whole seconds from the beginning of the load; the last, which is not whole, is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series(Vec<Ru>);

impl Series {
    /// The series of admissions in order of time.
    pub(super) fn new(begun: Time, admitted: &[(Time, Ru)]) -> Self {
        let mut seconds = Vec::new();
        for (at, cost) in admitted {
            let second = usize::try_from(at.since(begun).0 / 1_000_000).unwrap_or(usize::MAX);
            if second >= seconds.len() {
                seconds.resize(second.saturating_add(1), Ru::ZERO);
            }
            if let Some(sum) = seconds.get_mut(second) {
                *sum += *cost;
            }
        }
        seconds.pop();
        Self(seconds)
    }

    /// RU per second, on average, from one second up to another.
    pub fn mean(&self, from: usize, to: usize) -> Ru {
        let part = self.part(from, to);
        let count = i64::try_from(part.len()).unwrap_or(i64::MAX).max(1);
        Ru(part.iter().copied().sum::<Ru>().0 / count)
    }

    /// RU in the worst second from one up to another.
    pub fn least(&self, from: usize, to: usize) -> Ru {
        self.part(from, to).iter().copied().min().unwrap_or(Ru::ZERO)
    }

    /// Seconds there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the series is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn part(&self, from: usize, to: usize) -> &[Ru] {
        let to = to.min(self.0.len());
        self.0.get(from.min(to)..to).unwrap_or_default()
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole: Vec<String> = self.0.iter().map(|ru| (ru.0 / 1_000_000).to_string()).collect();
        f.write_str(&whole.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_without_an_admission_count_and_the_last_does_not() {
        let admitted = [(100, 2), (900_000, 3), (2_000_000, 4), (3_500_000, 9)];
        let admitted = admitted.map(|(at, cost)| (Time(at + 7), Ru::whole(cost)));
        let series = Series::new(Time(7), &admitted);
        assert_eq!(series.to_string(), "5 0 4");
        assert_eq!(
            (series.mean(0, 9), series.least(0, 9), series.least(2, 3)),
            (Ru::whole(3), Ru::ZERO, Ru::whole(4))
        );
    }
}
