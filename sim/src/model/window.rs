//! The worst window so far, as one number: what invariant I5 bounds.
//!
//! The excess of admitted RU over `rate * window`, at its largest over all windows that end now, is what a leaky
//! bucket holds: it gains what is admitted, leaks at the rate, and never falls below empty. It equals the measure of
//! `tidegate_core::bound`, and keeps nothing of the past that does not matter any more.

use tidegate_core::units::{Rate, Ru, Span};

/// RU above `rate * window` in the worst window that ends now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Window(Ru);

impl Window {
    /// Time passes.
    pub(super) fn pass(&mut self, rate: Rate, span: Span) {
        self.0 = (self.0 - rate.over(span)).or_zero();
    }

    /// RU are admitted, or given back when negative.
    pub(super) fn admit(&mut self, amount: Ru) {
        self.0 = (self.0 + amount).or_zero();
    }

    pub(super) fn excess(self) -> Ru {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::bound::Bound;
    use tidegate_core::units::Time;

    use super::*;
    use crate::random::Random;

    #[test]
    fn the_largest_excess_is_that_of_the_bound() {
        for seed in 1..200 {
            let mut random = Random::new(seed, 1);
            let rate = Rate::whole(4);
            let (mut window, mut bound) = (Window::default(), Bound::new(Time(0), rate));
            let (mut now, mut worst) = (Time(0), Ru::ZERO);
            for _ in 0..60 {
                let span = Span(random.between(0, 3) * 250_000);
                now = now.after(span);
                window.pass(rate, span);
                let amount = Ru::whole(i64::try_from(random.between(0, 5)).unwrap() - 2);
                window.admit(amount);
                bound.admit(now, amount);
                worst = worst.max(window.excess());
                assert_eq!(worst, bound.worst(), "seed {seed}");
            }
            assert!(worst.is_positive());
        }
    }
}
