//! The estimated cost of a request before it runs: fixed, from a closure, or the average of past ones.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use http::request::Parts;
use tidegate_core::units::Ru;

/// How the cost of a request is estimated.
#[derive(Clone)]
pub enum Estimate {
    /// The exponentially weighted average (1/8) of past requests through this layer; the first is thought to cost
    /// this much.
    Adaptive(Ru),
    /// Always this.
    Fixed(Ru),
    /// What the closure says.
    By(Arc<dyn Fn(&Parts) -> Ru + Send + Sync>),
}

impl Default for Estimate {
    fn default() -> Self {
        Self::Adaptive(Ru::whole(1))
    }
}

impl fmt::Debug for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive(first) => write!(f, "Adaptive({first})"),
            Self::Fixed(cost) => write!(f, "Fixed({cost})"),
            Self::By(_) => f.write_str("By(..)"),
        }
    }
}

/// An [`Estimate`] and what it has learned.
#[derive(Debug)]
pub(super) struct Estimator {
    estimate: Estimate,
    average: AtomicI64,
}

impl Estimator {
    pub(super) fn new(estimate: Estimate) -> Self {
        let first =
            if let Estimate::Adaptive(first) = estimate { first.or_zero().min(Ru::MAX) } else { Ru::ZERO };
        Self { estimate, average: AtomicI64::new(first.0) }
    }

    /// What `request` is thought to cost.
    pub(super) fn cost(&self, request: &Parts) -> Ru {
        match &self.estimate {
            Estimate::Adaptive(_) => Ru(self.average.load(Ordering::Relaxed)),
            Estimate::Fixed(cost) => *cost,
            Estimate::By(tell) => tell(request),
        }
    }

    /// Whether the estimate is a guess of this layer's own, which may be cut to what fits.
    pub(super) fn is_guess(&self) -> bool {
        matches!(self.estimate, Estimate::Adaptive(_))
    }

    /// A request cost this much.
    pub(super) fn learn(&self, actual: Ru) {
        let step = |average: i64| {
            let distance = actual.0.saturating_sub(average);
            // Rounds away from zero, so that the average arrives.
            let part = distance.saturating_add(distance.signum().saturating_mul(7)) / 8;
            Some(average.saturating_add(part))
        };
        // The closure always answers, so the update never fails.
        let _ = self.average.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_arrives_from_both_sides() {
        let parts = http::Request::new(()).into_parts().0;
        for (first, actual) in [(1_000_000, 3), (0, 5_000_000), (7, 7)] {
            let estimator = Estimator::new(Estimate::Adaptive(Ru(first)));
            (0..200).for_each(|_| estimator.learn(Ru(actual)));
            assert_eq!(estimator.cost(&parts), Ru(actual));
        }
        for (first, sound) in [(Ru(i64::MAX), Ru::MAX), (Ru(-1), Ru::ZERO)] {
            assert_eq!(Estimator::new(Estimate::Adaptive(first)).cost(&parts), sound);
        }
        let fixed = Estimator::new(Estimate::Fixed(Ru(9)));
        fixed.learn(Ru(100));
        assert_eq!(fixed.cost(&parts), Ru(9));
        let told =
            Estimator::new(Estimate::By(Arc::new(|parts| Ru(if parts.method == "GET" { 4 } else { 5 }))));
        assert_eq!(told.cost(&parts), Ru(4));
    }
}
