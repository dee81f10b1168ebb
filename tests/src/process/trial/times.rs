//! Times that were measured again and again.

use std::fmt;
use std::time::Duration;

use tidegate_core::units::Span;
use tokio::time::Instant;

/// Times, in order of length.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<Span>);

impl Times {
    pub(super) fn add(&mut self, span: Span) {
        let place = self.0.partition_point(|known| *known <= span);
        self.0.insert(place, span);
    }

    pub(super) fn at(&self, permille: usize) -> Span {
        let place = (self.0.len() * permille).div_ceil(1_000).saturating_sub(1);
        self.0.get(place).copied().unwrap_or_default()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, median, p99, most) = (self.at(0), self.at(500), self.at(990), self.at(1_000));
        write!(f, "{} times: least {least}, median {median}, p99 {p99}, most {most}", self.0.len())
    }
}

/// The time since then.
pub(super) fn span(from: Instant) -> Span {
    length(from.elapsed())
}

/// A duration.
pub(super) fn length(duration: Duration) -> Span {
    Span(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_those_at_or_below() {
        let mut times = Times::default();
        (1..=200).rev().for_each(|ms| times.add(Span::millis(ms)));
        let at = |permille| times.at(permille).0 / 1_000;
        assert_eq!([at(0), at(500), at(990), at(1_000)], [1, 100, 198, 200]);
        assert_eq!(Times::default().at(500), Span(0));
    }
}
