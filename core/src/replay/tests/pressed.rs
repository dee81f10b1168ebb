//! What is decided together is what each moment by itself would be.

use super::*;
use crate::replay::held::{Moments, Offer, Steady};

/// A policy whose moments are each decided by itself.
pub(super) struct ByItself<P> {
    pub(super) policy: P,
    /// Moments may pass as a whole all the same, where the policy lets them.
    pub(super) passes: bool,
}

impl<P: Steady> Steady for ByItself<P> {
    type State = P::State;
    const ALL_OR_NONE: bool = P::ALL_OR_NONE;

    fn fresh(&self) -> P::State {
        self.policy.fresh()
    }

    fn offer(&self, state: &mut P::State, from: Time, offer: Offer) {
        self.policy.offer(state, from, offer);
    }

    fn room(&self, state: &P::State, from: Time, until: Time) -> Option<[Ru; 2]> {
        self.policy.room(state, from, until)
    }

    fn start(
        &self,
        state: &mut P::State,
        turns: (Time, Time),
        cost: Ru,
        budget: &mut Budget,
    ) -> Result<Option<Time>, ReplayError> {
        self.policy.start(state, turns, cost, budget)
    }

    fn is_at_ease(&self, state: &P::State, moments: &Moments) -> bool {
        self.passes && self.policy.is_at_ease(state, moments)
    }

    fn pass(
        &self,
        state: &mut P::State,
        moments: &Moments,
        budget: &mut Budget,
    ) -> Result<bool, ReplayError> {
        if self.passes { self.policy.pass(state, moments, budget) } else { Ok(false) }
    }
}

/// The outcome, what of each sample is refused, and how many decisions that took.
pub(super) type Answer = (Outcome, Vec<u64>, u64);

/// Under a policy.
pub(super) fn answer(
    (record, settings): (&Record, &Settings),
    policy: impl Steady,
    hears_waits: bool,
) -> Answer {
    let (mut tally, mut refused) = (Tally::default(), vec![0; record.samples().len()]);
    let mut budget = Budget::of(u64::MAX);
    let mut hear = |index: usize, part| {
        if let Part::Refused(amount) = part {
            refused[index] += amount.0.unsigned_abs();
        }
        tally.add(part);
        true
    };
    Line::new(policy, settings, hears_waits).run(record, Spread::Even, &mut budget, &mut hear).unwrap();
    (tally.outcome(record, settings, &refused), refused, u64::MAX - budget.0)
}

/// Together, and each by itself.
fn both(record: &Record, settings: &Settings, hears_waits: bool) -> [Answer; 2] {
    let of = (record, settings);
    match settings.shape {
        Shape::TokenBucket => {
            let held = || Held::new(settings.rate, settings.burst()).unwrap();
            [
                answer(of, held(), hears_waits),
                answer(of, ByItself { policy: held(), passes: true }, hears_waits),
            ]
        }
        Shape::Paced => {
            let drained = || drained(settings.rate).unwrap();
            [
                answer(of, drained(), hears_waits),
                answer(of, ByItself { policy: drained(), passes: true }, hears_waits),
            ]
        }
        Shape::WarmUp { period, factor } => {
            let warming = || Warming::new(settings.rate, period, factor).unwrap();
            [
                answer(of, warming(), hears_waits),
                answer(of, ByItself { policy: warming(), passes: true }, hears_waits),
            ]
        }
    }
}

/// Short enough to be cold and warm within the records here.
const WARM_UP: Shape = Shape::WarmUp { period: Span::secs(10), factor: 3 };

proptest! {
    #[test]
    fn what_is_decided_together_is_what_each_moment_by_itself_would_be(
        rate in 1_i64..3_000_000,
        // In hundredths of the rate: bursts, and what is wanted.
        burst in 1_i64..600,
        parts in prop::collection::vec((0_u64..4, 1_u64..90_000_001, 0_i64..400, 0_u64..3_000), 1..24),
        patience in prop::sample::select(&[0, 1_000, 10_000, 50_000, 250_000, 1_000_000, 20_000_000][..]),
        hears_waits: bool,
        shape in prop::sample::select(&[Shape::TokenBucket, Shape::TokenBucket, Shape::Paced, WARM_UP][..]),
    ) {
        let burst = (rate * burst / 100).max(1);
        let mut at = 0;
        let samples: Vec<_> = parts.into_iter().map(|(gap, length, wanted, operations)| {
            let start = Time(at + gap.saturating_sub(2) * 1_500_000);
            at = start.0 + length;
            let wanted = i128::from(rate) * i128::from(length) * i128::from(wanted) / 100_000_000;
            let amount = Ru(i64::try_from(wanted).unwrap());
            Sample { start, length: Span(length), amount, operations: operations.saturating_sub(500) }
        }).collect();
        let settings = Settings {
            shape,
            rate: Rate(rate),
            burst: Some(Ru(burst)),
            patience: Span(patience),
            quota: None,
        };
        let record = Record::new(samples).unwrap();
        let [together, by_itself] = both(&record, &settings, hears_waits);
        // Waits are parts of a moment, so that without them only what starts is the same.
        prop_assert_eq!(&together.1, &by_itself.1);
        if hears_waits || patience == 0 {
            prop_assert_eq!(together.0, by_itself.0);
        }
    }
}

/// Settings as people give them: moments of a minute are equally far from each other, or nearly, and after some of them
/// all comes again.
const USUAL_PATIENCES: [u64; 7] = [0, 10, 50, 100, 125, 250, 1_000];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn minutes_under_whole_rates_are_what_each_moment_by_itself_would_be(
        rate in 20_i64..700,
        burst_percent in prop::sample::select(&[5, 10, 20, 50, 100, 500][..]),
        // In percent of the rate.
        wanted in prop::collection::vec(20_u64..300, 1..6),
        cost in prop::sample::select(&[1, 1, 1, 2, 7][..]),
        patience in prop::sample::select(&USUAL_PATIENCES[..]),
        hears_waits: bool,
        shape in prop::sample::select(&[Shape::TokenBucket, Shape::TokenBucket, Shape::Paced, WARM_UP][..]),
    ) {
        let minute = |(minute, percent): (u64, u64)| {
            let operations = rate.unsigned_abs() * 60 * percent / 100 / cost;
            sample(minute * 60, 60, i64::try_from(operations * cost).unwrap(), operations)
        };
        let record = Record::new((0..).zip(wanted).map(minute).collect()).unwrap();
        let burst = (rate * burst_percent / 100).max(1);
        let settings = Settings { shape, ..bucket(rate, burst, Span::millis(patience)) };
        let [together, by_itself] = both(&record, &settings, hears_waits);
        prop_assert_eq!(&together.1, &by_itself.1);
        if hears_waits || patience == 0 {
            prop_assert_eq!(together.0, by_itself.0);
        }
    }
}

#[test]
fn a_month_over_the_cap_takes_a_fraction_of_the_decisions() {
    let record = month::minutes(3);
    for (tenths, patience, part) in [(10, 0, 10), (1, 0, 10), (10, 250, 2), (1, 100, 2)] {
        let settings =
            Settings { burst: Some(Ru::whole(48 * tenths)), ..bucket(480, 1, Span::millis(patience)) };
        for hears_waits in [false, true] {
            let part = if hears_waits { part } else { 10 };
            let [together, by_itself] = both(&record, &settings, hears_waits);
            assert_eq!(together.1, by_itself.1);
            let said = format!("{} of {} decisions: {settings:?}", together.2, by_itself.2);
            assert!(together.2 * part < by_itself.2, "{said}");
        }
    }
}
