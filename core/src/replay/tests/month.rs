//! A month of minutes: how many decisions it takes, and that the search ends where it may.

use super::*;

/// So many decisions take about a second of a processor.
const FEW: u64 = MOST_DECISIONS / 2;

/// Minutes of 500 RU/s in the mean, from 200 by night to 800 by day, and up to a fifth more or less; operations of 1 RU.
pub(super) fn minutes(days: u64) -> Record {
    let mut noise = 1_u64;
    let minute = |minute: u64| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let of_day = minute % 1_440;
        let by_day = 200 + 600 * of_day.min(1_440 - of_day) / 720;
        let ru = by_day * 60 * (80 + (noise >> 33) % 41) / 100;
        sample(minute * 60, 60, i64::try_from(ru).unwrap(), ru)
    };
    Record::new((0..days * 1_440).map(minute).collect()).unwrap()
}

#[test]
fn a_month_of_minutes_takes_few_decisions_whatever_is_over_the_cap() {
    let record = minutes(30);
    for (rate, tenths, patience) in [(900, 10, 1_000), (680, 10, 1_000), (480, 10, 1_000), (480, 50, 1_000)] {
        let settings = Settings {
            burst: Some(Ru::whole(rate * tenths / 10)),
            ..bucket(rate, 1, Span::millis(patience))
        };
        let mut budget = Budget::default();
        compare(&record, Some(&settings), &settings, Span::millis(100), &mut budget).unwrap();
        let spent = MOST_DECISIONS - budget.0;
        assert!(spent < FEW, "{rate} RU/s, a burst of {tenths} tenths of a second: {spent} decisions");
    }
}

/// Whether 99 of 100 parts start in time under a step of the rate, decided with waits in parts.
fn holds(record: &Record, settings: &Settings, spread: Spread, bound: Span, index: u32) -> bool {
    let settings = Settings { rate: search::candidate(index), patience: bound, ..settings.clone() };
    let refused = replay(record, &settings, spread, &mut Budget::of(u64::MAX)).unwrap().0.refused;
    refused <= record.amount() / 100
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_search_ends_at_a_rate_that_holds_above_one_that_does_not(
        parts in prop::collection::vec((0_u64..3, 1_u64..8, 0_i64..900, 0_u64..60), 1..12),
        burst in prop::option::of(1_i64..300),
        bound in 0_u64..2_000,
        even: bool,
    ) {
        let mut at = 0;
        let samples: Vec<_> = parts.into_iter().map(|(gap, length, ru, operations)| {
            let start = at + gap;
            at = start + length;
            sample(start, length, ru, operations)
        }).collect();
        let record = Record::new(samples).unwrap();
        let spread = if even { Spread::Even } else { Spread::AtOnce };
        for shape in [Shape::TokenBucket, Shape::Paced] {
            let settings = Settings { shape, burst: burst.map(Ru::whole), ..bucket(1, 1, Span(0)) };
            let bound = Span::millis(bound);
            let found = cheapest(&record, &settings, spread, bound, &mut Budget::of(u64::MAX)).unwrap();
            let index = (0..=search::LAST).find(|index| Some(search::candidate(*index)) == found);
            let holds = |index| holds(&record, &settings, spread, bound, index);
            let said = format!("{found:?} of {settings:?}, {record:?}");
            match index {
                None => prop_assert!(!holds(search::LAST), "{said}"),
                Some(index) => {
                    prop_assert!(holds(index), "{said}");
                    // Nothing below a bound is tried, so a wrong one is found here.
                    prop_assert!(index == 0 || !holds(index - 1), "{said}");
                }
            }
        }
    }
}
