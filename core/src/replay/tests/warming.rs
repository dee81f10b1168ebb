//! A rate that warms up, and operations that count in a quota.

use super::*;

fn warming(rate: i64, patience: Span) -> Settings {
    let shape = Shape::WarmUp { period: Span::secs(10), factor: 3 };
    Settings { shape, ..bucket(rate, rate, patience) }
}

/// RU admitted in each sample.
fn admitted(samples: &[Sample], settings: &Settings, spread: Spread) -> Vec<i64> {
    let record = Record::new(samples.to_vec()).unwrap();
    let (_, lost) = replay(&record, settings, spread, &mut Budget::default()).unwrap();
    let admitted = |(sample, lost): (&Sample, &u64)| (sample.amount.0.unsigned_abs() - lost) / 1_000_000;
    samples.iter().zip(&lost).map(|pair| i64::try_from(admitted(pair)).unwrap()).collect()
}

fn near(is: i64, of: i64, percent: i64) -> bool {
    (is - of).abs() * 100 <= of * percent
}

#[test]
fn a_rate_warms_up_with_use_and_is_cold_after_a_pause() {
    // Twice the limit for 20 s, a pause of a minute, and again. The curve yields 1,000 RU in the 10 s until it is warm.
    let busy = |from: u64| (from..from + 20).map(|second| sample(second, 1, 400, 400));
    let samples: Vec<_> = busy(0).chain(busy(80)).collect();
    let seconds = admitted(&samples, &warming(200, Span::millis(250)), Spread::Even);
    for run in seconds.chunks(20) {
        let (cold, warm): (i64, i64) = (run[..10].iter().sum(), run[10..].iter().sum());
        assert!(near(cold, 1_000, 6) && near(warm, 2_000, 2), "{cold} cold, {warm} warm: {run:?}");
        // The patience lets some more in at first, which then waits.
        assert!((60..100).contains(&run[1]) && (195..=205).contains(&run[15]), "{run:?}");
    }
    // By minutes, too: 40 s of 60 are warm.
    let minutes = [sample(0, 60, 24_000, 24_000)];
    let minute = admitted(&minutes, &warming(200, Span::secs(1)), Spread::Even);
    assert!(near(minute[0], 1_000 + 10_000, 4), "{minute:?}");
}

#[test]
fn a_light_load_never_warms_it_up_and_is_never_refused() {
    let minutes: Vec<_> = (0..1_440).map(|minute| sample(minute * 60, 60, 60 * 60, 3_600)).collect();
    let outcome = run(&minutes, &warming(200, Span(0)), Spread::Even);
    assert_eq!((outcome.refused, outcome.delayed), (0, 0));
    // A gust after it meets the cold rate: 66.7 RU/s.
    let gust = [&minutes[..], &[sample(86_400, 1, 1_000, 1_000)]].concat();
    let admitted = admitted(&gust, &warming(200, Span::millis(250)), Spread::Even);
    assert!((60..160).contains(&admitted[1_440]), "{}", admitted[1_440]);
    // A paced group that is always warm admits three times as much.
    let paced = Settings { shape: Shape::Paced, ..warming(200, Span::millis(250)) };
    let outcome = run(&gust, &paced, Spread::Even);
    assert!((1_000 - outcome.refused / 1_000_000) >= 200, "{outcome:?}");
}

#[test]
fn warming_up_takes_the_cheapest_rate_that_it_has_a_curve_for() {
    let record = Record::new(vec![sample(0, 60, 6_000, 6_000)]).unwrap();
    let settings = warming(200, Span(0));
    let found = cheapest(&record, &settings, Spread::Even, Span::secs(1), &mut Budget::default());
    let found = found.unwrap().unwrap();
    // 100 RU/s come: the cold rate may be below that, and warms up in time.
    assert!((Rate::whole(100)..Rate::whole(310)).contains(&found), "{found}");
    let longest = Settings { shape: Shape::WarmUp { period: Span::secs(3_600), factor: 100 }, ..settings };
    let huge = Record::new(vec![sample(0, 1, 1_000_000_000, 0)]).unwrap();
    let found = cheapest(&huge, &longest, Spread::AtOnce, Span(0), &mut Budget::default());
    assert!(found.is_ok(), "a rate without a curve is not tried: {found:?}");
}

#[test]
fn requests_count_whatever_they_cost() {
    // 10 operations a second of 7 RU, and in every other second 5 that cost nothing.
    let seconds: Vec<_> = (0..240)
        .flat_map(|second| {
            let paid = sample(2 * second, 1, 70, 10);
            [paid, sample(2 * second + 1, 1, 0, 5)]
        })
        .collect();
    let windows = (1..4).map(|window| Time(window * 120_000_000)).collect();
    let settings = Settings { quota: Some(Windows::requests(150, windows)), ..bucket(1_000, 1_000, Span(0)) };
    for spread in Spread::ALL {
        let seconds_admitted = admitted(&seconds, &settings, spread);
        // 15 of two seconds: the first 20 s of each window.
        for (second, ru) in (0_u64..).zip(&seconds_admitted) {
            let expected = if second % 2 == 0 && second % 120 < 20 { 70 } else { 0 };
            assert_eq!(*ru, expected, "{spread:?}: second {second}");
        }
    }
    let uncounted = Record::new(vec![sample(0, 60, 70, 0)]).unwrap();
    let error = replay(&uncounted, &settings, Spread::Even, &mut Budget::default()).unwrap_err();
    assert!(error.to_string().contains("needs the number of operations"), "{error}");
}

/// What even use and idle time balance each other at is the same however long the steps are in which it is followed.
#[test]
fn even_use_keeps_the_rate_at_which_it_balances_idle_time() {
    // Cold is 45 RU/s. Idle time stores 536 RU/s, so that 300 RU/s keep the store where 0.44 of the time is used: at 682.
    let shape = Shape::WarmUp { period: Span::secs(600), factor: 20 };
    let settings = Settings { shape, ..bucket(900, 900, Span(0)) };
    let full = (0..40).map(|minute| sample(minute * 60, 60, 900 * 60, 900 * 60));
    let even = (40..200).map(|minute| sample(minute * 60, 60, 300 * 60, 300 * 60));
    for (rate, lost) in [(650, false), (715, true)] {
        let after = sample(200 * 60, 1, rate, rate.unsigned_abs());
        let samples: Vec<_> = full.clone().chain(even.clone()).chain([after]).collect();
        let admitted = admitted(&samples, &settings, Spread::Even);
        assert_eq!(admitted[200] < rate, lost, "{} of {rate}", admitted[200]);
        assert_eq!(admitted[199], 300 * 60);
    }
}
