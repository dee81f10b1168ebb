mod budget;
mod month;
mod pressed;
mod quotas;
mod warming;

use proptest::prelude::*;

use super::*;

/// Longer than any record here, so that nobody is refused for a wait.
const PATIENT: Span = Span(u64::MAX);

fn sample(at_s: u64, length_s: u64, ru: i64, operations: u64) -> Sample {
    Sample { start: Time(at_s * 1_000_000), length: Span::secs(length_s), amount: Ru::whole(ru), operations }
}

fn bucket(rate: i64, burst: i64, patience: Span) -> Settings {
    let (rate, burst) = (Rate::whole(rate), Some(Ru::whole(burst)));
    Settings { shape: Shape::TokenBucket, rate, burst, patience, quota: None }
}

fn run(samples: &[Sample], settings: &Settings, spread: Spread) -> Outcome {
    let record = Record::new(samples.to_vec()).unwrap();
    replay(&record, settings, spread, &mut Budget::default()).unwrap().0
}

#[test]
fn what_fits_evenly_waits_only_where_it_comes_at_once() {
    let minute = [sample(60, 60, 6_000, 6_000)];
    let even = run(&minute, &bucket(100, 100, Span(0)), Spread::Even);
    assert_eq!((even.offered, even.refused, even.delayed, even.p99), (6_000_000_000, 0, 0, Span(0)));
    assert_eq!((even.use_ppm(), even.refused_ppm(), even.refusing_ppm()), (1_000_000, 0, 0));
    // The burst starts, and 5,900 of 6,000 are refused.
    let gust = run(&minute, &bucket(100, 100, Span(0)), Spread::AtOnce);
    assert_eq!((gust.refused, gust.refused_ppm(), gust.refusing_ppm()), (5_900_000_000, 983_333, 1_000_000));
    // With patience of ten seconds as much as they yield starts, too.
    let patient = run(&minute, &bucket(100, 100, Span::secs(10)), Spread::AtOnce);
    assert_eq!((patient.admitted(), patient.delayed), (1_100_000_000, 1_000_000_000));
    assert!((Span::millis(9_700)..=Span::millis(10_160)).contains(&patient.p99), "{:?}", patient.p99);
}

#[test]
fn of_twice_the_rate_half_is_refused_after_the_burst() {
    let minutes: Vec<_> = (0..60).map(|minute| sample(minute * 60, 60, 12_000, 1_200)).collect();
    for shape in [Shape::TokenBucket, Shape::Paced] {
        let settings = Settings { shape, ..bucket(100, 100, Span::millis(500)) };
        let outcome = run(&minutes, &settings, Spread::Even);
        assert!((495_000..=501_000).contains(&outcome.refused_ppm()), "{shape:?}: {outcome:?}");
        assert_eq!(outcome.refusing_ppm(), 1_000_000);
        assert!(outcome.use_ppm() >= 990_000, "{shape:?}: {outcome:?}");
        assert!(outcome.p99 <= Span::millis(508), "{shape:?}: {outcome:?}");
    }
}

#[test]
fn operations_that_cost_more_than_the_burst_never_fit() {
    for shape in [Shape::TokenBucket, Shape::Paced] {
        let settings = Settings { shape, ..bucket(100, 10, PATIENT) };
        let outcome = run(&[sample(0, 60, 110, 10), sample(60, 60, 100, 10)], &settings, Spread::Even);
        assert_eq!((outcome.refused, outcome.refusing), (110_000_000, Span::secs(60)), "{shape:?}");
        let record = Record::new(vec![sample(0, 60, 110, 10)]).unwrap();
        let found = cheapest(&record, &settings, Spread::Even, Span(0), &mut Budget::default());
        assert_eq!(found, Ok(None), "{shape:?}");
    }
}

#[test]
fn a_deep_burst_comes_back_by_what_is_not_leased() {
    // 100 RU/s, of which ten seconds are saved up. A gust takes all, twenty seconds of 20 follow, and another gust.
    let steady = |from: u64, seconds: u64, ru| (from..from + seconds).map(move |at| sample(at, 1, ru, 0));
    let of = |ru| {
        let seconds: Vec<_> =
            steady(0, 1, 2_000).chain(steady(1, 20, ru)).chain(steady(21, 1, 2_000)).collect();
        let outcome = run(&seconds, &bucket(100, 1_000, Span(0)), Spread::AtOnce);
        outcome.refused / 1_000_000
    };
    // The first gust finds 1,000. Until the next second nodes get 50 more. Then 70 of 100 RU/s are leased, and the pool
    // gains 30.
    assert_eq!(of(20), 1_000 + 2_000 - 50 - 20 * 30);
    // All is leased, and what comes back is half a second of it.
    assert_eq!(of(50), 1_000 + 2_000 - 50);
    // Nobody asks, half is leased, and all of the burst is back.
    assert_eq!(of(0), 1_000 + 2_000 - 1_000);
}

#[test]
fn a_sample_between_its_neighbours_is_a_step() {
    let parts = |samples: Vec<Sample>, at| {
        let of = |part: Sample| (part.start.0, part.length.0, part.amount.0, part.operations);
        Record::new(samples).unwrap().parts(at).map(of).collect::<Vec<_>>()
    };
    let second = 1_000_000;
    // From 20 RU/s to 100: a quarter of the second before.
    let rises = vec![sample(0, 1, 20, 20), sample(1, 1, 80, 40), sample(2, 1, 100, 50)];
    assert_eq!(
        parts(rises.clone(), 1),
        [(second, 250_000, 4_000_000, 2), (1_250_000, 750_000, 76_000_000, 38)]
    );
    assert_eq!(parts(rises.clone(), 0).len() + parts(rises, 2).len(), 2, "nobody knows what was beside");
    let falls = vec![sample(0, 1, 100, 0), sample(1, 1, 60, 0), sample(2, 1, 20, 0)];
    assert_eq!(parts(falls, 1), [(second, 500_000, 50_000_000, 0), (1_500_000, 500_000, 10_000_000, 0)]);
    // Nothing was wanted where no sample is, so it began within this one.
    for operations in [0, 5] {
        let begins = vec![sample(0, 1, 9, 9), sample(10, 1, 5, operations), sample(11, 1, 10, 10)];
        let half = 500_000;
        assert_eq!(
            parts(begins, 1),
            [(10 * second, half, 0, 0), (10 * second + half, half, 5_000_000, operations)]
        );
    }
    // Nor behind it, whatever comes later: it ended within this one, or was a peak.
    for later in [0, 5, 50] {
        let ends = vec![sample(0, 1, 10, 10), sample(1, 1, 5, 5), sample(10, 1, later, 0)];
        assert_eq!(parts(ends, 1), [(second, 500_000, 5_000_000, 5), (1_500_000, 500_000, 0, 0)]);
        let peak = vec![sample(0, 1, 0, 0), sample(1, 1, 5, 5), sample(10, 1, later, 0)];
        assert_eq!(parts(peak, 1).len(), 1, "{later}");
    }
    // A peak, a valley and a plateau stay whole.
    for middle in [5, 9, 10, 12, 20] {
        let whole = vec![sample(0, 1, 10, 10), sample(1, 1, middle, 10), sample(2, 1, 9, 10)];
        assert_eq!(parts(whole, 1).len(), 1, "{middle}");
    }
}

#[test]
fn a_small_burst_admits_its_part_of_a_gust_of_small_operations() {
    let outcome = run(&[sample(0, 60, 60_000, 0)], &bucket(100, 1, Span(0)), Spread::AtOnce);
    let admitted = outcome.admitted();
    assert!((999_980..=1_000_000).contains(&admitted), "{admitted} of the burst of 1,000,000");
}

#[test]
fn the_cheapest_rate_holds_and_the_next_lower_does_not() {
    let busy = |second: u64| if second % 10 < 2 { 900 } else { 100 };
    let seconds: Vec<_> = (0..600).map(|second| sample(second, 1, busy(second), 100)).collect();
    let record = Record::new(seconds).unwrap();
    for (spread, bound) in Spread::ALL.into_iter().zip([Span::millis(100), Span::millis(400)]) {
        let settings = Settings { burst: None, ..bucket(1, 1, Span(0)) };
        let found = cheapest(&record, &settings, spread, bound, &mut Budget::default()).unwrap().unwrap();
        let refused = |rate| {
            let settings = Settings { rate, patience: bound, ..settings.clone() };
            replay(&record, &settings, spread, &mut Budget::default()).unwrap().0.refused_ppm()
        };
        assert!(refused(found) <= 10_000 && refused(found.scale(97, 100)) > 10_000, "{spread:?}: {found}");
        assert!((Rate::whole(250)..Rate::whole(1_000)).contains(&found), "{spread:?}: {found}");
    }
}

#[test]
fn a_budget_ends_a_replay_and_a_record_is_checked() {
    let record = Record::new(vec![sample(0, 60, 1_000_000, 1_000_000)]).unwrap();
    let short = replay(&record, &bucket(1, 1, PATIENT), Spread::AtOnce, &mut Budget::of(3));
    assert_eq!(short, Err(ReplayError::TooLong));
    let bad = replay(&record, &bucket(0, 1, PATIENT), Spread::Even, &mut Budget::default()).unwrap_err();
    assert!(bad.to_string().contains("rate 0"), "{bad}");
    let of = |samples: &[Sample]| Record::new(samples.to_vec()).err();
    assert_eq!(of(&[]), Some(RecordError::Empty));
    assert_eq!(of(&[sample(0, 60, 1, 1), sample(59, 60, 1, 1)]), Some(RecordError::Order(1)));
    assert_eq!(of(&[sample(0, 0, 1, 1)]), Some(RecordError::Range(0)));
    assert_eq!(of(&[sample(0, 1, -1, 1)]), Some(RecordError::Range(0)));
    assert_eq!(of(&vec![sample(0, 1, 1, 1); MOST_SAMPLES + 1]), Some(RecordError::Many(MOST_SAMPLES + 1)));
}

/// The pool and what nodes hold, by fractions of its own.
struct Slow {
    rate: i128,
    full: i128,
    leased: i128,
    cap: i128,
    near: i128,
    pool: i128,
    at: u64,
}

impl Slow {
    fn advance(&mut self, to: u64) {
        let passed = i128::from(to.saturating_sub(self.at));
        self.at = self.at.max(to);
        self.near = (self.near + passed * self.leased).min(self.cap);
        self.pool = (self.pool + passed * (self.rate - self.leased)).min(self.full - self.cap);
    }

    fn lease(&mut self, from: u64, leased: i128, largest: i128) {
        self.advance(from);
        let all = self.near + self.pool;
        self.leased = leased;
        self.cap = (leased * 500_000).min(self.full / 2 * leased / self.rate);
        self.cap = self.cap.max((2 * largest).min(self.full * leased / self.rate));
        self.near = self.near.min(self.cap);
        self.pool = (all - self.near).min(self.full - self.cap);
        self.near = all - self.pool;
    }

    fn take(&mut self, cost: i128) {
        let near = self.near.min(cost);
        (self.near, self.pool) = (self.near - near, self.pool - (cost - near));
        let too_much = (self.pool - (self.full - self.cap)).max(0);
        (self.near, self.pool) = (self.near + too_much, self.pool - too_much);
    }
}

/// Decides each moment of each sample: without a shortcut.
fn slowly(samples: &[Sample], rate: i64, burst: i64, patience: u64) -> (u128, u128) {
    let (rate, full) = (i128::from(rate), i128::from(burst) * 1_000_000);
    let mut held = Slow { rate, full, leased: 0, cap: 0, near: 0, pool: full, at: 0 };
    let (mut free, mut end, mut refused, mut delayed) = (0_u64, 0_u64, 0, 0);
    for sample in samples.iter().filter(|sample| sample.amount.0 > 0) {
        let (begin, length) = (sample.start.0, sample.length.0);
        let amount = sample.amount.0.unsigned_abs();
        let count = if sample.operations == 0 { (1 << 32).min(amount) } else { sample.operations };
        let cost = |n: u64| {
            let (share, rest) = (i128::from(amount / count), i128::from(amount % count));
            share * i128::from(n) + rest.min(n.into())
        };
        let part = |whole: u64, n: u64, of: u64| {
            u64::try_from(u128::from(whole) * u128::from(n) / u128::from(of)).unwrap()
        };
        if end < begin {
            held.lease(end, rate / 2, 0);
        }
        if end + 60_000_000 < begin {
            held.lease(end + 60_000_000, 0, 0);
        }
        end = begin + length;
        let offered = i128::from(amount) * 1_000_000 / i128::from(length);
        held.lease(begin, (rate / 2 + offered).min(rate), cost(1) * 1_000_000);
        let finest = 1_200.min(count).min(length);
        let most = cost(count.div_ceil(finest)) * 1_000_000;
        if free <= begin && most <= held.near && held.leased * i128::from(length / finest) >= most {
            for moment in 0..finest {
                free = begin + part(length, moment, finest);
                held.advance(free);
                let wanted = cost(part(count, moment + 1, finest)) - cost(part(count, moment, finest));
                held.near -= wanted * 1_000_000;
                assert!(held.near >= 0, "what is at ease takes nothing of the pool");
            }
            continue;
        }
        let fills = u64::try_from((i128::from(burst / 4) * 1_000_000 + rate - 1) / rate).unwrap();
        let pause = fills.min(250_000) + patience;
        let moments = length.div_ceil(pause.max(1)).clamp(20, 1_200).min(count).min(length);
        for moment in 0..moments {
            let arrival = begin + part(length, moment, moments);
            let (mut first, end) = (part(count, moment, moments), part(count, moment + 1, moments));
            let (mut some, mut size) = (None, 1);
            while size > 0 && first < end {
                let turn = arrival.max(free);
                let passed = i128::from(turn.saturating_sub(held.at));
                let near = (held.near + passed * held.leased).min(held.cap);
                let pool = (held.pool + passed * (rate - held.leased)).min(full - held.cap);
                // One by one, how many are covered at once, and how many in time.
                let least = |amount: i128| {
                    let covers = |n: &u64| (cost(first + n) - cost(first)) * 1_000_000 <= amount;
                    let (mut low, mut high) = (0, end - first);
                    while low < high {
                        let middle = low + (high - low).div_ceil(2);
                        if covers(&middle) { low = middle } else { high = middle - 1 }
                    }
                    low
                };
                let gained = i128::from((arrival + patience).saturating_sub(turn)) * rate;
                let whole = |amount: i128| amount.min(full) / 1_000_000 * 1_000_000;
                let in_time = if turn > arrival + patience { 0 } else { least(whole(near + pool + gained)) };
                let some = *some.get_or_insert(in_time.div_ceil(4));
                let prompt = if in_time == 0 { 0 } else { least(whole(near + pool)) };
                size = if prompt > 0 { prompt } else { in_time.min(some) };
                if size == 0 {
                    break;
                }
                let cost = cost(first + size) - cost(first);
                let wanted = cost * 1_000_000;
                let waits = ((wanted - near - pool).max(0) + rate - 1) / rate;
                let start = i128::from(turn) + waits;
                if (cost == 0 || wanted <= full) && start <= i128::from(arrival + patience) {
                    free = u64::try_from(start).unwrap();
                    if cost > 0 {
                        held.advance(turn);
                        if waits > 0 {
                            // All that the limit yields comes together for those who wait.
                            held.pool = (held.near + held.pool + waits * rate).min(full);
                            (held.near, held.at) = (0, free);
                        }
                        held.take(wanted);
                    }
                    delayed += if free > arrival { cost.unsigned_abs() } else { 0 };
                    first += size;
                } else {
                    panic!("what is covered in time starts in time");
                }
            }
            refused += (cost(end) - cost(first)).unsigned_abs();
        }
    }
    (refused, delayed)
}

proptest! {
    #[test]
    fn a_replay_is_what_each_moment_by_itself_would_be(
        parts in prop::collection::vec((0_u64..3, 1_u64..120, 0_i64..40_000_000, 0_u64..300), 1..30),
        rate in 1_i64..3_000_000,
        burst in 300_000_i64..6_000_000,
        patience in 0_u64..3_000_000,
    ) {
        let mut at = 0;
        let samples: Vec<_> = parts.into_iter().map(|(gap, length, micro, operations)| {
            let start = Time(at + gap * 500_000);
            at = start.0 + length * 500_000;
            Sample { start, length: Span(length * 500_000), amount: Ru(micro), operations }
        }).collect();
        let settings = Settings {
            shape: Shape::TokenBucket,
            rate: Rate(rate),
            burst: Some(Ru(burst)),
            patience: Span(patience),
            quota: None,
        };
        let outcome = run(&samples, &settings, Spread::Even);
        let record = Record::new(samples.clone()).unwrap();
        let parts: Vec<_> = (0..samples.len()).flat_map(|at| record.parts(at)).collect();
        let of = |samples: &[Sample]| {
            samples.iter().fold((0, 0), |(ru, count), of| (ru + of.amount.0, count + of.operations))
        };
        prop_assert_eq!(of(&parts), of(&samples));
        prop_assert_eq!((outcome.refused, outcome.delayed), slowly(&parts, rate, burst, patience));
        let gust = run(&samples, &settings, Spread::AtOnce);
        prop_assert_eq!(gust.offered, outcome.offered);
        prop_assert!(outcome.p50 <= outcome.p99 && outcome.p99.0 <= patience + patience / 64 + 1);
    }
}

#[test]
fn refused_operations_were_wanted_too_at_the_cost_of_those_beside_them() {
    let counted = |second: u64, charged, operations, refused| Counted {
        start: Time(second * 1_000_000),
        length: Span::secs(1),
        charged,
        operations,
        refused,
    };
    let of = |counted: &[Counted]| {
        let record = Record::of(counted).unwrap();
        record.samples().iter().map(|sample| (sample.amount.0, sample.operations)).collect::<Vec<_>>()
    };
    let all = [counted(0, 30, 3, 2), counted(1, 0, 0, 4), counted(2, 70, 7, 0)];
    assert_eq!(of(&all), [(50, 5), (40, 4), (70, 7)]);
    assert_eq!(of(&[counted(0, 500, 0, 0)]), [(500, 0)], "a count that is not known");
    let huge = Record::of(&[counted(0, 1, 1, 1), counted(1, u128::MAX, 1, 1)]);
    assert_eq!(huge.unwrap_err(), RecordError::Range(1));
}

#[test]
fn a_quota_is_used_up_and_begins_again_with_its_window() {
    // 100 RU a second for ten minutes, in seconds; windows of two minutes may use 3,000.
    let seconds: Vec<_> = (0..600).map(|second| sample(second, 1, 100, 100)).collect();
    let begins = (1..5).map(|window| Time(window * 120_000_000)).collect();
    let quota = Some(Windows::new(Ru::whole(3_000), begins));
    // What is paced and comes at once takes a tenth of its second.
    let cases =
        [(Shape::TokenBucket, Spread::Even, Span(0)), (Shape::Paced, Spread::AtOnce, Span::millis(100))];
    for (shape, spread, patience) in cases {
        let settings = Settings { shape, quota: quota.clone(), ..bucket(1_000, 1_000, patience) };
        let record = Record::new(seconds.clone()).unwrap();
        let (outcome, lost) = replay(&record, &settings, spread, &mut Budget::default()).unwrap();
        assert_eq!((outcome.admitted(), outcome.capacity), (15_000_000_000, 15_000_000_000), "{shape:?}");
        // Each window admits its first 30 seconds.
        for (second, lost) in (0_u64..).zip(&lost) {
            assert_eq!(*lost, if second % 120 < 30 { 0 } else { 100_000_000 }, "{shape:?}: second {second}");
        }
        assert_eq!((outcome.use_ppm(), outcome.refusing_ppm()), (1_000_000, 750_000));
        let found = cheapest(&record, &settings, spread, Span::secs(1), &mut Budget::default());
        assert_eq!(found, Ok(None), "no rate helps");
    }
}

#[test]
fn what_waits_for_the_rate_counts_in_the_window_in_which_it_starts() {
    let quota = Some(Windows::new(Ru::whole(200), vec![Time(58_000_000), Time(118_000_000)]));
    let settings = Settings { quota, ..bucket(10, 100, Span::secs(20)) };
    // The second comes in the first window, in which it fits, and has its tokens at 60 s.
    let each: Vec<_> = [50, 51, 75, 90].map(|second| sample(second, 1, 100, 1)).into();
    let record = Record::new(each).unwrap();
    for spread in [Spread::AtOnce, Spread::Even] {
        let (_, lost) = replay(&record, &settings, spread, &mut Budget::default()).unwrap();
        assert_eq!(lost, [0, 0, 0, 100_000_000], "{spread:?}");
    }
}

#[test]
fn who_has_patience_waits_for_the_next_window() {
    let quota = Some(Windows::new(Ru::whole(10), vec![Time(60_000_000), Time(120_000_000)]));
    let settings = |patience| Settings { quota: quota.clone(), ..bucket(1_000, 1_000, patience) };
    let gust = [sample(50, 1, 25, 25)];
    let now = run(&gust, &settings(Span(0)), Spread::AtOnce);
    assert_eq!((now.admitted(), now.delayed), (10_000_000, 0));
    let later = run(&gust, &settings(Span::secs(10)), Spread::AtOnce);
    assert_eq!(later.admitted(), 20_000_000);
    assert!((Span::secs(10)..Span::millis(10_200)).contains(&later.p99), "{later:?}");
    // Two windows later all of it has started.
    assert_eq!(run(&gust, &settings(Span::secs(70)), Spread::AtOnce).refused, 0);
    // An operation above the quota never fits.
    assert_eq!(run(&[sample(0, 60, 11, 1)], &settings(PATIENT), Spread::Even).refused_ppm(), 1_000_000);
}
